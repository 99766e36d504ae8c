// Sends requests to the server of this page, or to ?server=http://HOST:PORT,
// which may be TensorFlow Serving with --rest_api_enable_cors_support. ?model=
// names another model; ?text= is translated at once.
"use strict";

const parameters = new URLSearchParams(location.search);
const model = parameters.get("model") ?? document.querySelector("meta[name=model]").content;
const server = parameters.get("server") ?? "";
const url = `${server}/v1/models/${encodeURIComponent(model)}`;
const byId = (id) => document.getElementById(id);
const CELL = 26; // pixels
let request = new AbortController();

async function fetchJson(address, options) {
  const response = await fetch(address, options).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Error(
      server
        ? `No answer from ${server}: it does not run, or not with --rest_api_enable_cors_support.`
        : "No answer from the server: it does not run.",
    );
  });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.error ?? `HTTP ${response.status}`);
  return body;
}

async function predict(signature, text, signal) {
  const body = JSON.stringify({ signature_name: signature, inputs: [text] });
  const headers = { "Content-Type": "application/json" };
  const options = { method: "POST", headers, body, signal };
  return (await fetchJson(`${url}:predict`, options)).outputs;
}

async function translate(text) {
  request.abort(); // its answer would be that of an earlier text
  request = new AbortController();
  const { signal } = request;
  byId("error").hidden = true;
  byId("result").setAttribute("aria-busy", "true");
  try {
    showHypotheses(await predict("n_best", text, signal));
    await predict("attention", text, signal).then(showAttention, (error) => {
      if (signal.aborted) throw error;
      showNoAttention(error);
    });
  } catch (error) {
    if (signal.aborted) return;
    byId("error").textContent = error.message;
    byId("error").hidden = false;
    byId("result").hidden = true;
  }
  byId("result").setAttribute("aria-busy", "false");
}

// A list of fewer outputs than beams ends in empty ones, whose score is -1e9.
function countOutputs(scores) {
  return Math.max(scores.filter((score) => score >= -5e8).length, 1);
}

function showHypotheses({ outputs: [texts], scores: [scores], truncated: [cut] }) {
  byId("best").textContent = texts[0];
  byId("truncated").hidden = !cut;
  byId("hypotheses").replaceChildren(
    ...texts.slice(0, countOutputs(scores)).map((text, i) => {
      const item = document.createElement("li");
      const score = document.createElement("data");
      score.value = scores[i];
      score.textContent = scores[i].toFixed(2);
      item.append(score, " ", text);
      return item;
    }),
  );
  byId("attention").hidden = true;
  byId("no-attention").hidden = true;
  byId("result").hidden = false;
}

function showNoAttention(error) {
  const noSignature = /signature/i.test(error.message);
  byId("no-attention").textContent = noSignature
    ? "This export has no signature attention: export the model again to get it."
    : error.message;
  byId("no-attention").hidden = false;
}

function showAttention(outputs) {
  if (outputs.truncated[0]) return showNoAttention(new Error("The text is too long for a picture."));
  const source = words(outputs.source_pieces[0].slice(0, outputs.source_lengths[0]));
  const target = words(outputs.target_pieces[0].slice(0, outputs.target_lengths[0]));
  const layers = outputs.weights[0].map((weights) => byWord(weights, source, target));
  const mean = target.map((_, t) =>
    source.map((_, s) => layers.reduce((sum, layer) => sum + layer[t][s], 0) / layers.length),
  );
  const choices = [["mean of all", mean], ...layers.map((layer, i) => [`${i + 1}`, layer])];
  byId("layer").replaceChildren(...choices.map(([name]) => new Option(name)));
  const draw = () => {
    const [, weights] = choices[byId("layer").selectedIndex];
    byId("picture").replaceChildren(picture(source, target, weights));
  };
  byId("layer").onchange = draw;
  draw();
  byId("attention").hidden = false;
}

// Join pieces to words: [{text, pieces: their indices}]. "▁" begins a word; a
// byte of a letter that the vocabulary lacks is a piece such as <0xF0>. Without
// "▁" the pieces are those of another vocabulary, and each is drawn. The last
// one is the end of the sentence.
function words(pieces) {
  const joined = [];
  const marked = pieces.some((piece) => piece.startsWith("▁"));
  pieces.forEach((piece, index) => {
    const isEnd = index === pieces.length - 1;
    if (index === 0 || !marked || piece.startsWith("▁") || isEnd) {
      joined.push({ text: "", pieces: [] });
    }
    const word = joined.at(-1);
    word.text += isEnd ? "(end)" : piece.replaceAll("▁", " ").trim();
    word.pieces.push(index);
  });
  for (const word of joined) {
    word.text = word.text.replace(/(<0x[0-9A-F]{2}>)+/g, (bytes) =>
      new TextDecoder().decode(Uint8Array.from(bytes.match(/[0-9A-F]{2}(?=>)/g), (b) => parseInt(b, 16))),
    );
  }
  return joined;
}

// Convert weights between pieces to weights between words: the sum over the
// pieces of a source word, the mean over the pieces of a target word.
function byWord(weights, source, target) {
  return target.map(({ pieces: rows }) =>
    source.map(({ pieces: columns }) => {
      let sum = 0;
      for (const row of rows) for (const column of columns) sum += weights[row][column];
      return sum / rows.length;
    }),
  );
}

function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function picture(source, target, weights) {
  const widest = (side) => Math.max(...side.map((word) => [...word.text].length)) * 8.5 + 12;
  const left = widest(target), top = widest(source);
  const width = left + source.length * CELL, height = top + target.length * CELL;
  const drawing = svg("svg", {
    role: "img",
    width: width + 10,
    height: height + 2,
    "aria-label": target.map(({ text }, t) => {
      const most = weights[t].indexOf(Math.max(...weights[t]));
      return `${text} from ${source[most].text}`;
    }).join(", "),
  });
  source.forEach(({ text }, s) => {
    const x = left + (s + 0.65) * CELL, y = top - 6;
    drawing.append(svg("text", { x, y, transform: `rotate(-90 ${x} ${y})` }, text));
  });
  target.forEach(({ text }, t) => {
    const y = top + t * CELL;
    drawing.append(svg("text", { x: left - 8, y: y + 0.68 * CELL, "text-anchor": "end" }, text));
    source.forEach((word, s) => {
      const weight = weights[t][s];
      const title = svg("title", {}, `${text} ← ${word.text}: ${(100 * weight).toFixed(0)}%`);
      drawing.append(svg("rect", {
        x: left + s * CELL + 1, y: y + 1, width: CELL - 2, height: CELL - 2, rx: 3,
        "fill-opacity": weight.toFixed(3),
      }, title));
    });
  });
  drawing.append(svg("rect", { class: "frame", x: left, y: top, width: width - left, height: height - top, rx: 4 }));
  return drawing;
}

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("text").value.trim();
  if (text) translate(text);
});
byId("text").addEventListener("keydown", (event) => {
  // isComposing: the Enter confirms a word of an input method.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("form").requestSubmit();
});
fetchJson(url).then(
  ({ model_version_status: versions }) => {
    const serving = versions.find((version) => version.state === "AVAILABLE");
    byId("model").textContent = `${model}, version ${serving?.version ?? "none"}`;
  },
  (error) => { byId("model").textContent = error.message; },
);
if (parameters.get("text")) {
  byId("text").value = parameters.get("text");
  byId("form").requestSubmit();
}
