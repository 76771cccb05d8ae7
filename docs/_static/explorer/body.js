// A solid body, seen pixel by pixel: the vectors whose L1 norm, L2 norm or signs are bounded.
import { channels } from "./drawing.js";
import { dot } from "./geometry.js";

const SIDE = 360;
// A unit vector: to the left, from above, towards the reader.
const LIGHT = [-0.4, 0.6, Math.sqrt(0.48)];
// Half of the pairs of opposite faces of the octahedron; then the three planes between octants.
const FACES = [[1, 1, 1], [1, 1, -1], [1, -1, 1], [-1, 1, 1]];
const WALLS = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];

const sheet = document.createElement("canvas");
sheet.width = sheet.height = SIDE;

// Returns a picture of the square [-extent, extent] around the origin. `colourAt(x, y, z)` says what the surface looks like
// there, from 0 (body) to 1 (body-sparse), and below 0 where it is no part of the set.
export function picture(body, view, extent, colour, colourAt) {
  const pen = sheet.getContext("2d");
  const image = pen.createImageData(SIDE, SIDE);
  const paint = painter(image.data, view, colour, colourAt);
  const ray = rayThrough(body, view);
  for (let row = 0, at = 0; row < SIDE; row += 1) {
    const b = extent * (1 - (2 * row + 1) / SIDE);
    for (let column = 0; column < SIDE; column += 1, at += 4) {
      const a = extent * ((2 * column + 1) / SIDE - 1);
      if (ray(a, b)) paint(at, a, b, ray.depth, ray.normal);
    }
  }
  pen.putImageData(image, 0, 0);
  return sheet;
}

// A function of two coordinates on the screen: whether the body is seen there. It leaves where, and which way the surface
// looks, as properties: an object for every pixel would be slow.
function rayThrough({ l1 = Infinity, l2 = Infinity, nonnegative = false }, view) {
  const planes = [
    ...(l1 < Infinity ? FACES.map((normal) => ({ normal, low: -l1, high: l1 })) : []),
    ...(nonnegative ? WALLS.map((normal) => ({ normal, low: 0, high: Infinity })) : []),
  ].map((plane) => ({ ...plane, ...inView(plane.normal, view) }));

  const ray = (a, b) => {
    const left = l2 * l2 - a * a - b * b;
    if (left < 0) return false;
    let [near, far] = [Math.sqrt(left), -Math.sqrt(left)];
    ray.normal = null;
    for (const plane of planes) {
      const start = a * plane.right + b * plane.up;
      let [low, high] = [(plane.low - start) / plane.eye, (plane.high - start) / plane.eye];
      const turned = plane.eye < 0;
      if (turned) [low, high] = [high, low];
      if (high < near) {
        near = high;
        ray.normal = turned ? plane.back : plane.front;
      }
      if (low > far) far = low;
      if (!(near > far)) return false;
    }
    ray.depth = near;
    return true;
  };
  return ray;
}

function inView(normal, view) {
  const size = Math.hypot(...normal);
  const seen = { right: dot(normal, view.right), up: dot(normal, view.up), eye: dot(normal, view.eye) || 1e-12 };
  const front = [seen.right / size, seen.up / size, seen.eye / size];
  return { ...seen, front, back: front.map((value) => -value) };
}

function painter(data, view, colour, colourAt) {
  const [plain, sparse, paper] = [colour.body, colour["body-sparse"], colour.paper].map(channels);
  const { right, up, eye } = view;
  const coordinate = (i, a, b, depth) => a * right[i] + b * up[i] + depth * eye[i];
  return (at, a, b, depth, flat) => {
    // The ball's own surface looks away from the origin.
    const light = flat
      ? dot(flat, LIGHT)
      : (a * LIGHT[0] + b * LIGHT[1] + depth * LIGHT[2]) / Math.sqrt(a * a + b * b + depth * depth);
    const shade = 0.8 + 0.2 * Math.max(0, light);
    const mix = colourAt(coordinate(0, a, b, depth), coordinate(1, a, b, depth), coordinate(2, a, b, depth));
    for (let i = 0; i < 3; i += 1) {
      const base = mix < 0 ? 0.55 * plain[i] + 0.45 * paper[i] : plain[i] + mix * (sparse[i] - plain[i]);
      data[at + i] = shade * base;
    }
    data[at + 3] = 255;
  };
}
