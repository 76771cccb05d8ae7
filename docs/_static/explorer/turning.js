// The picture in three dimensions as somebody turns it, by keys or by dragging, or drags x.
import { camera, moved } from "./geometry.js";
import { decimals, field, part } from "./page.js";
import { SETS, call } from "./sets.js";
import { drawSpace } from "./space.js";
import { state } from "./state.js";
import { l2Norm, rounded } from "./vectors.js";

const VIEW = { turn: 0.36, tilt: 0.34 };
const KEYS = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
const PER_PIXEL = 1 / 120;
const position = { ...VIEW };
let sketch;

const pointOf = () => Float64Array.of(state.x1, state.x2, state.x3);

export function showSpace(core) {
  const point = pointOf();
  const options = SETS[state.set].options(state, point);
  const p = core.solve(point, options).value;
  sketch = drawSpace(part("space"), sceneOf(core, point, p, options), position);
  part("call3").textContent = call(options, `[${[...point].join(", ")}]`);
  part("p3").textContent = `[${Array.from(p, (value) => decimals(value, 3)).join(", ")}]`;
}

function sceneOf(core, point, p, options) {
  const bySparseness = options.sparseness !== undefined;
  const longest = bySparseness ? 1 : 0.85 * options.l1;
  return {
    set: state.set, x: [...point], p: [...p], trail: trailOf(core, point),
    extent: Math.max(longest, l2Norm(point)),
    nonnegative: options.nonnegative ?? false,
    ...(bySparseness ? sphereOf(p, options) : bodyOf(options)),
  };
}

function sphereOf(p, { sparseness, l2, only_increase: atLeast }) {
  const ratio = 1 + (1 - sparseness) * (Math.sqrt(3) - 1);
  const norm = l2Norm(p);
  return { ratio, norm, radius: norm, anyNorm: l2 === "nearest", atLeast };
}

const bodyOf = ({ l1, l2 = Infinity }) => ({ l1, l2, radius: state.set === "simplex" ? 0 : Math.min(l1, l2) });

// Where p goes as the first dial is turned from one end to the other.
function trailOf(core, point) {
  const dial = SETS[state.set].dials[0];
  const [min, max] = [field(dial).min, field(dial).max].map(Number);
  return Array.from({ length: 61 }, (_, i) => {
    const dials = { ...state, [dial]: min + ((max - min) * i) / 60 };
    return [...core.solve(point, SETS[state.set].options(dials, point)).value];
  });
}

function turn(byRight, byUp) {
  position.turn -= byRight;
  position.tilt = Math.max(-Math.PI / 2, Math.min(Math.PI / 2, position.tilt + byUp));
}

function turnByKey(event) {
  if (event.key === "Home") Object.assign(position, VIEW);
  else if (KEYS[event.key]) turn(...KEYS[event.key]);
  else return false;
  event.preventDefault();
  return true;
}

const nearX = ({ clientX, clientY }) => {
  const box = part("space").getBoundingClientRect();
  const [a, b] = sketch.place(pointOf());
  return Math.hypot(clientX - box.left - a, clientY - box.top - b) < 24;
};

// In the plane of the screen, within the range of the number fields.
function movingX() {
  let point = [...pointOf()];
  return (byRight, byDown) => {
    point = moved(point, camera(position), byRight / sketch.unit, -byDown / sketch.unit);
    [state.x1, state.x2, state.x3] = point.map((value) => rounded(Math.max(-2, Math.min(2, value))));
  };
}

function startDragging(event, update) {
  const canvas = part("space");
  const move = nearX(event) ? movingX() : (byRight, byDown) => turn(PER_PIXEL * byRight, PER_PIXEL * byDown);
  let last = event;
  const drag = (next) => {
    move(next.clientX - last.clientX, next.clientY - last.clientY);
    last = next;
    update();
  };
  canvas.setPointerCapture(event.pointerId);
  canvas.addEventListener("pointermove", drag);
  canvas.addEventListener("lostpointercapture", () => canvas.removeEventListener("pointermove", drag), { once: true });
}

export function listenToTurning(update) {
  const canvas = part("space");
  canvas.addEventListener("keydown", (event) => turnByKey(event) && update());
  canvas.addEventListener("pointerdown", (event) => startDragging(event, update));
  // A finger on x moves x, not the page.
  canvas.addEventListener("touchstart", (event) => nearX(event.touches[0]) && event.preventDefault(), { passive: false });
}
