// What both pictures share: canvases that are sharp on every screen, and the page's own colours.

const COLOURS = ["ink", "muted", "line", "before", "result", "threshold", "paper", "body", "body-sparse"];

export function colours(canvas) {
  const style = getComputedStyle(canvas);
  const value = (name) => style.getPropertyValue(`--explorer-${name}`).trim();
  return Object.fromEntries(COLOURS.map((name) => [name, value(name)]));
}

// An empty canvas in units of the page's pixels.
export function cleared(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = `14px ${getComputedStyle(canvas).fontFamily}`;
  return { pen, width, height, ratio };
}

export function channels(colour) {
  const hex = colour.slice(1);
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
