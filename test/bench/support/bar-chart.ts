/** Grouped horizontal bars as an SVG of its own: a panel a quantity, a bar a contender. */
export interface Panel {
  readonly title: string;
  readonly unit: string;
  readonly bars: readonly { readonly name: string; readonly value: number }[];
}

const width = 760;
const labelWidth = 230;
const barHeight = 22;
const gap = 8;
const titleHeight = 34;
const colours = ["#2a78b5", "#e07b39", "#7a8b99", "#4c9f70", "#9d6fb0"];

/** Bars of a panel share a scale that begins at 0; contenders keep their colour over all panels. */
export function barChart(title: string, panels: readonly Panel[]): string {
  const parts: string[] = [];
  const contenders = [...new Set(panels.flatMap(({ bars }) => bars.map(({ name }) => name)))];
  let y = titleHeight;
  for (const panel of panels) {
    y += titleHeight;
    parts.push(text(16, y - 10, `${panel.title} (${panel.unit})`, 'font-weight="600"'));
    const most = Math.max(...panel.bars.map(({ value }) => value), Number.MIN_VALUE);
    for (const { name, value } of panel.bars) {
      const length = Math.max(1, (value / most) * (width - labelWidth - 110));
      const middle = y + barHeight / 2 + 5;
      const colour = colours[contenders.indexOf(name) % colours.length];
      parts.push(
        text(labelWidth - 8, middle, name, 'text-anchor="end"'),
        `<rect x="${labelWidth}" y="${y}" width="${length.toFixed(1)}" height="${barHeight}" rx="2" fill="${colour}"/>`,
        text(labelWidth + length + 6, middle, shown(value)),
      );
      y += barHeight + gap;
    }
  }
  const height = y + 12;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="13" fill="#222">`,
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    text(16, 26, title, 'font-size="16" font-weight="600"'),
    ...parts,
    "</svg>\n",
  ].join("\n");
}

function text(x: number, y: number, content: string, attributes = ""): string {
  const escaped = content.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<text x="${x.toFixed(1)}" y="${y}" ${attributes}>${escaped}</text>`;
}

function shown(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
