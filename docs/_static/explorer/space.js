// The picture in three dimensions: a set, x, its projection p, and the way that p takes as the dial is turned.
import { picture } from "./body.js";
import { cleared, colours } from "./drawing.js";
import { OCTANTS, camera, curves, dot } from "./geometry.js";

const ROOT = Math.sqrt(3);
const AXES = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
// Good enough to colour a picture; all numbers are the core's.
const tone = (x, y, z) => {
  const ratio = (Math.abs(x) + Math.abs(y) + Math.abs(z)) / Math.sqrt(x * x + y * y + z * z);
  return (ROOT - ratio) / (ROOT - 1);
};

// Draws, and returns how to find a point on the canvas.
export function drawSpace(canvas, scene, position) {
  const { pen, width, height, ratio } = cleared(canvas);
  const sketch = new Sketch(pen, camera(position), width, height, scene.extent, colours(canvas), ratio);
  DRAW[scene.set](sketch, scene);
  sketch.axes(scene.radius);
  sketch.path(scene.trail, { style: sketch.colour.result, width: 1.5, dash: [2, 3] });
  sketch.path([scene.x, scene.p], { style: sketch.colour.ink, width: 1.5, dash: [5, 3] });
  sketch.point(scene.x, sketch.colour.ink, "x");
  sketch.point(scene.p, sketch.colour.result, "p", 6, [9, 14]);
  return sketch;
}

const sphere = (sketch, scene) => {
  const { ratio, norm, nonnegative, atLeast } = scene;
  const level = atLeast ? (ROOT - ratio) / (ROOT - 1) : -1;
  sketch.body({ l2: norm }, (x, y, z) => {
    if (nonnegative && (x < 0 || y < 0 || z < 0)) return -1;
    const sigma = tone(x, y, z);
    return sigma < level ? -1 : atLeast ? 0.75 : sigma;
  });
  const set = curves(ratio * norm, norm, nonnegative);
  if (scene.anyNorm) sketch.rays(set, scene.extent / norm);
  for (const arc of set) sketch.path(arc, { style: sketch.colour.result, width: 3 });
  // At sparseness 0 the circles are points, and at sparseness 1 the arcs.
  for (const arc of set) sketch.point(arc[30], sketch.colour.result, "", arcLength(arc) < 0.05 * norm ? 4 : 0);
};

const arcLength = (arc) => Math.hypot(...arc[0].map((value, i) => value - arc[15][i]));

const octahedron = (sketch, { l1, l2, nonnegative }) => {
  sketch.body({ l1, l2, nonnegative }, () => 0.45);
  sketch.edges(l1, l2, nonnegative);
};

const triangle = (sketch, { l1 }) => {
  const corners = AXES.map((axis) => axis.map((value) => l1 * value));
  sketch.area(corners);
  sketch.path([...corners, corners[0]], { style: sketch.colour.result, width: 2.5 });
};

const DRAW = {
  sparseness: sphere, increase: sphere, simplex: triangle, sphere: octahedron, ball: octahedron, balls: octahedron,
};

class Sketch {
  constructor(pen, view, width, height, extent, colour, ratio) {
    Object.assign(this, { pen, view, width, height, extent, colour, ratio });
    this.unit = Math.min(width, height) / 2 / (1.22 * extent);
  }

  // Right and down in pixels, and towards the eye.
  place(point) {
    const { right, up, eye } = this.view;
    const x = this.width / 2 + this.unit * dot(point, right);
    return [x, this.height / 2 - this.unit * dot(point, up), dot(point, eye)];
  }

  body(shape, colourAt) {
    const reach = 1.22 * this.extent;
    const side = 2 * reach * this.unit;
    const drawn = picture(shape, this.view, reach, this.colour, colourAt);
    this.pen.globalAlpha = 0.92;
    this.pen.drawImage(drawn, this.width / 2 - side / 2, this.height / 2 - side / 2, side, side);
    this.pen.globalAlpha = 1;
  }

  // A line through points, faint where it lies behind.
  path(points, { style, width, dash = [], faint = 0.25, seen = false, hidden = false }) {
    const { pen } = this;
    pen.strokeStyle = style;
    pen.lineWidth = width;
    pen.lineCap = dash.length ? "butt" : "round";
    pen.setLineDash(dash);
    for (const [part, behind] of bySide(points.map((point) => this.place(point)))) {
      pen.globalAlpha = hidden || (behind && !seen) ? faint : 1;
      pen.beginPath();
      for (const [x, y] of part) pen.lineTo(x, y);
      pen.stroke();
    }
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  // From where they leave the body, which hides the rest.
  axes(radius) {
    const { pen, colour } = this;
    const along = (axis, length) => axis.map((value) => length * value);
    AXES.forEach((axis, i) => {
      const end = Math.max(1.14 * this.extent, 1.08 * radius);
      this.path([along(axis, radius), along(axis, end)], { style: colour.muted, width: 1.25, faint: 0.4 });
      const [x, y] = this.place(along(axis, end + 0.09 * this.extent));
      pen.fillStyle = colour.muted;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(["x₁", "x₂", "x₃"][i], x, y);
    });
  }

  // From the origin through some points of curves: the cone of all their multiples.
  rays(set, reach) {
    for (const arc of set) {
      for (let i = 0; i < arc.length; i += 12) {
        const end = arc[i].map((value) => reach * value);
        this.path([[0, 0, 0], end], { style: this.colour.result, width: 0.75, faint: 0.12 });
      }
    }
  }

  // The octahedron's edges, as far as they lie in the ball, and where they meet it. What belongs to a face that looks at the
  // reader is seen.
  edges(l1, l2, nonnegative) {
    const style = { style: this.colour.result, width: 1.75, faint: 0.15 };
    const facing = (normal) => dot(normal, this.view.eye) > 0;
    for (const signs of nonnegative ? OCTANTS.slice(0, 1) : OCTANTS) {
      for (const i of [0, 1, 2]) {
        const other = signs.map((sign, k) => (k === i ? -sign : sign));
        const seen = facing(signs) || (nonnegative ? facing(other.map((_, k) => (k === i ? -1 : 0))) : facing(other));
        const part = edge(l1, signs, i).filter((p) => Math.hypot(...p) <= l2 * 1.000001);
        if (part.length > 1) this.path(part, { ...style, seen, hidden: !seen });
      }
    }
    if (l2 >= l1 || l1 >= ROOT * l2) return;
    for (const arc of curves(l1, l2, nonnegative)) this.path(arc, { ...style, seen: facing(arc[30].map(Math.sign)) });
  }

  area(corners) {
    const { pen, colour } = this;
    pen.fillStyle = colour["body-sparse"];
    pen.globalAlpha = 0.75;
    pen.beginPath();
    for (const corner of corners) pen.lineTo(...this.place(corner).slice(0, 2));
    pen.fill();
    pen.globalAlpha = 1;
  }

  point(point, style, label, radius = 6, [right, down] = [10, -10]) {
    const { pen } = this;
    const [x, y, depth] = this.place(point);
    if (!radius) return;
    pen.globalAlpha = depth < -1e-9 && !label ? 0.25 : 1;
    pen.fillStyle = style;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fill();
    if (label) this.#label(label, x + right, y + down, style);
    pen.globalAlpha = 1;
  }

  #label(text, x, y, style) {
    const { pen, colour } = this;
    const font = pen.font;
    pen.font = `italic 600 17px ${font.replace(/^.*?px /, "")}`;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.lineWidth = 4;
    pen.strokeStyle = colour.paper;
    pen.strokeText(text, x, y);
    pen.fillStyle = style;
    pen.fillText(text, x, y);
    pen.font = font;
  }
}

// Points of the edge opposite to axis i, in one octant.
function edge(l1, signs, i) {
  const [j, k] = [(i + 1) % 3, (i + 2) % 3];
  return Array.from({ length: 61 }, (_, step) => {
    const point = [0, 0, 0];
    point[j] = (signs[j] * l1 * step) / 60;
    point[k] = signs[k] * l1 * (1 - step / 60);
    return point;
  });
}

// Runs of points on the near and on the far side; neighbouring runs share a point.
function* bySide(places) {
  let run = [places[0]];
  let side = null;
  for (const place of places.slice(1)) {
    const behind = place[2] + run.at(-1)[2] < -1e-9;
    if (side !== null && behind !== side) {
      yield [run, side];
      run = [run.at(-1)];
    }
    side = behind;
    run.push(place);
  }
  yield [run, side];
}
