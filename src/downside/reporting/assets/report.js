"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const sections = data.sections;
  const at = { agent: 0, episode: 0, step: 0 };
  const find = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const FEW = 6;

  // --- text and elements: everything from the data goes through textContent ---------------------
  const say = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && size < 0.001) return value.toExponential(0);
    return size >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(size < 1 ? 3 : 4));
  };
  const percent = (share) => {
    if (share <= 0) return "0%";
    if (share < 0.001) return "< 0.1%";
    return (share < 0.0995 ? +(100 * share).toFixed(1) : Math.round(100 * share)) + "%";
  };
  const make = (name, attributes = {}, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const html = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const legend = (host, entries) => {
    host.replaceChildren(...entries.map(([name, colour]) => {
      const item = html("span");
      item.append(html("i", "mark c" + (colour % FEW)), html("bdi", "", name));
      return item;
    }));
  };

  // --- one chart: axes, grid and what `draw` adds -------------------------------------------------
  const ticks = (low, high, count) => {
    const rough = (high - low) / count;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((k) => k * unit).find((k) => k >= rough * 0.999);
    const out = [];
    for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-6; tick += step) out.push(+tick.toPrecision(10));
    return out;
  };
  const padded = (values, share = 0.05) => {
    let low = Math.min(...values), high = Math.max(...values);
    if (!(high > low)) { low -= 0.5; high += 0.5; }
    const room = share * (high - low);
    return [low - room, high + room];
  };
  const chart = (id, options, draw) => {
    const host = find(id);
    const width = Math.max(260, Math.min(host.clientWidth || 420, 1100));
    const height = options.height || Math.round(Math.max(190, Math.min(0.58 * width, 290)));
    const left = 46, right = 12, top = 12, bottom = 36;
    const [x0, x1] = options.x, [y0, y1] = options.y;
    const X = (x) => left + (x - x0) / (x1 - x0) * (width - left - right);
    const Y = (y) => height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label });
    const across = options.whole ? ticks(x0, x1, 8).filter((x) => Number.isInteger(x)) : ticks(x0, x1, width / 75);
    for (const x of across) {
      if (!options.bare) svg.append(make("line", { class: "gridline", x1: X(x), x2: X(x), y1: Y(y0), y2: Y(y1) }));
      svg.append(make("text", { x: X(x), y: height - bottom + 14, "text-anchor": "middle" }, say(x)));
    }
    for (const y of options.yTicks || ticks(y0, y1, 4)) {
      svg.append(make("line", { class: "gridline", x1: X(x0), x2: X(x1), y1: Y(y), y2: Y(y) }));
      svg.append(make("text", { x: left - 6, y: Y(y) + 4, "text-anchor": "end" }, options.yText ? options.yText(y) : say(y)));
    }
    svg.append(make("line", { class: "axis", x1: X(x0), x2: X(x1), y1: Y(y0), y2: Y(y0) }));
    svg.append(make("text", { x: (X(x0) + X(x1)) / 2, y: height - 5, "text-anchor": "middle" }, options.xName));
    draw({ svg, X, Y, width, height, top, bottom, left, right, x0, x1, y0, y1 });
    if (options.pick) {
      svg.addEventListener("click", (event) => {
        const box = svg.getBoundingClientRect();
        const place = (event.clientX - box.left) / box.width * width;
        options.pick(x0 + (place - left) / (width - left - right) * (x1 - x0));
      });
    }
    host.replaceChildren(svg);
    separate(svg);
  };
  // Labels never overprint: one that would is moved up or down, and left out if there is no room.
  const separate = (svg) => {
    const boxes = [];
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBBox();
      if (!box.width) continue;
      const free = [0, 13, -13, 26, -26, 39, -39].find((shift) => boxes.every((b) =>
        box.x >= b.x + b.width || b.x >= box.x + box.width || box.y + shift >= b.y + b.height - 2 || b.y >= box.y + shift + box.height - 2));
      if (free === undefined || (free && !text.classList.length && text.getAttribute("y") > svg.viewBox.baseVal.height - 36)) { text.remove(); continue; }
      if (free) text.setAttribute("y", Number(text.getAttribute("y")) + free);
      boxes.push({ x: box.x, y: box.y + free, width: box.width, height: box.height });
    }
  };
  const line = (points, { X, Y }) => points.map(([x, y], i) => `${i ? "L" : "M"}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join("");
  const stairs = (quantiles, { X, Y, x0, x1 }) => {
    let path = `M${X(x0).toFixed(1)} ${Y(0).toFixed(1)}`;
    quantiles.forEach((q, i) => {
      const x = X(Math.min(Math.max(q, x0), x1)).toFixed(1);
      path += `L${x} ${Y(i / quantiles.length).toFixed(1)}L${x} ${Y((i + 1) / quantiles.length).toFixed(1)}`;
    });
    return path + `L${X(x1).toFixed(1)} ${Y(1).toFixed(1)}`;
  };
  const upright = (x, view, attributes, text) => {
    view.svg.append(make("line", { x1: view.X(x), x2: view.X(x), y1: view.Y(view.y0), y2: view.top, ...attributes }));
    if (text) {
      const late = view.X(x) > view.width - 90;
      view.svg.append(make("text", { x: view.X(x) + (late ? -5 : 5), y: view.top + 10, "text-anchor": late ? "end" : "start", class: "strong" }, text));
    }
  };

  // --- the explorer -----------------------------------------------------------------------------
  const here = () => {
    const section = sections[at.agent];
    const episode = section.episodes[at.episode];
    return { section, episode, step: episode.steps[at.step], steps: episode.steps };
  };
  const nearest = (time) => {
    const { steps } = here();
    let best = 0;
    steps.forEach((step, i) => { if (Math.abs(step.t - time) < Math.abs(steps[best].t - time)) best = i; });
    go(best);
  };
  const go = (index) => {
    const { steps } = here();
    at.step = Math.max(0, Math.min(steps.length - 1, index));
    showStep();
  };
  const running = (step) => step.acts.length > 0;

  const showFacts = () => {
    const { episode, step } = here();
    const rows = episode.observationNames.map((name, i) => [name, say(step.observation[i])]);
    rows.push(["earned so far (s)", say(step.s)], ["next reward counts (c)", say(step.c)]);
    if (step.do) rows.push(["what it does", step.do]);
    if (step.r !== null) rows.push(["what that pays", say(step.r)]);
    if (running(step)) {
      rows.push(["share that matters", percent(step.level)]);
      rows.push(["value here", say(step.value)]);
    }
    rows.push(["weight of this step (ξ)", say(step.xi)]);
    find("facts").replaceChildren(...rows.map(([name, value]) => {
      const row = html("tr");
      const head = html("th", "", name);
      head.scope = "row";
      row.append(head, html("td", "", value));
      return row;
    }));
  };
  const times = () => { const { steps } = here(); return [-0.4, Math.max(1, steps[steps.length - 1].t) + 0.4]; };
  const cursor = (view) => view.svg.append(make("line", {
    x1: view.X(here().step.t), x2: view.X(here().step.t), y1: view.top, y2: view.Y(view.y0), stroke: "var(--soft)", "stroke-dasharray": "3 3",
  }));

  const showLevel = () => {
    const { section, steps, step } = here();
    const label = `Share of outcomes that matters, by step; ${percent(step.level)} at step ${step.t}.`;
    chart("level", { x: times(), y: [0, 1.02], yTicks: [0, 0.25, 0.5, 0.75, 1], yText: percent, xName: "step", whole: true, label, pick: nearest }, (view) => {
      const spread = section.calibration;
      if (spread) {
        const kept = spread.times.map((t, i) => i).filter((i) => spread.running[i] > 0.02);
        for (const [low, high, opacity] of [[0, 4, 0.14], [1, 3, 0.24]]) {
          const up = kept.map((i) => [spread.times[i], spread.spread[i][high]]);
          const down = kept.map((i) => [spread.times[i], spread.spread[i][low]]).reverse();
          if (kept.length) view.svg.append(make("path", { d: line([...up, ...down], view) + "Z", fill: "var(--fill)", opacity }));
        }
      }
      const shown = steps.filter(running);
      view.svg.append(make("path", { d: line(shown.map((one) => [one.t, one.level]), view), stroke: "var(--orange)", "stroke-width": 2, fill: "none" }));
      if (shown.length <= 60) for (const one of shown) view.svg.append(make("circle", { cx: view.X(one.t), cy: view.Y(one.level), r: 3, fill: "var(--orange)" }));
      cursor(view);
      if (running(step)) {
        view.svg.append(make("circle", { cx: view.X(step.t), cy: view.Y(step.level), r: 6, fill: "var(--card)", stroke: "var(--orange)", "stroke-width": 3 }));
      }
    });
  };
  const showCurves = () => {
    const { section, steps, step } = here();
    const shown = steps.filter(running);
    const every = Math.max(1, Math.floor(shown.length / 16));
    const others = shown.filter((one, i) => i % every === 0 && one !== step);
    const total = (one) => one.q.map((q) => one.s + one.c * q);
    const draw = (id, of, options) => {
      const values = [step, ...others].flatMap(of);
      values.sort((a, b) => a - b);
      const cut = Math.floor(values.length * 0.004);
      const range = padded([values[cut], values[values.length - 1 - cut], ...of(step), ...(options.lines || [])], 0.03);
      chart(id, { x: range, y: [0, 1.02], yTicks: [0, 0.25, 0.5, 0.75, 1], yText: percent, xName: options.xName, label: options.label }, (view) => {
        others.forEach((one, i) => view.svg.append(make("path", {
          d: stairs(of(one), view), stroke: "var(--blue)", fill: "none", "stroke-width": 1, opacity: (0.6 - 0.45 * i / others.length).toFixed(2),
        })));
        if (options.shade !== undefined) {
          const edge = view.X(options.shade);
          view.svg.append(make("rect", { x: view.left, y: view.top, width: Math.max(0, edge - view.left), height: view.Y(0) - view.top, fill: "var(--orange)", opacity: 0.08 }));
        }
        (options.lines || []).forEach((x, i) => upright(x, view, { stroke: "var(--orange)", "stroke-width": 1.5 }, `λ ${percent(section.levels[i])}`));
        view.svg.append(make("path", { d: stairs(of(step), view), stroke: "var(--ink)", fill: "none", "stroke-width": 2.4 }));
      });
    };
    draw("cdf", (one) => one.q, { xName: "return still to come", label: `Distribution of the return to come at step ${step.t}.` });
    const [first] = section.lines;
    draw("total", total, {
      xName: "total of the episode", lines: section.lines, shade: section.lines.length === 1 ? first : undefined,
      label: `Distribution of the total of the episode seen from step ${step.t}` + (section.lines.length ? `; the line is at ${section.lines.map(say).join(", ")}.` : "."),
    });
  };
  const showWeights = () => {
    const { episode, steps, step } = here();
    const single = episode.weightNames.length === 1;
    find("weights-title").textContent = single ? "How much this step weighs (ξ)" : "What it weighs";
    const shown = steps.filter(running);
    const most = single ? Math.max(1.2, ...shown.map((one) => one.xi)) * 1.05 : 1;
    const label = single ? `Weight of each step; ${say(step.xi)} at step ${step.t}.` : "Weights of the parts of the measure at step " + step.t + ": "
      + episode.weightNames.map((name, i) => `${name} ${percent(step.weights[i])}`).join(", ") + ".";
    chart("weights", { x: times(), y: [0, most], xName: "step", whole: true, bare: true, label, pick: nearest, yText: single ? undefined : percent }, (view) => {
      const wide = Math.max(1.5, (view.X(1) - view.X(0)) * 0.78 * Math.max(1, episode.stride));
      for (const one of shown) {
        const parts = single ? [one.xi] : one.weights;
        let bottom = 0;
        parts.forEach((part, i) => {
          view.svg.append(make("rect", {
            class: "mark c" + (single ? 1 : i % FEW), x: view.X(one.t) - wide / 2, width: wide, y: view.Y(bottom + part),
            height: Math.max(0, view.Y(bottom) - view.Y(bottom + part)), opacity: one === step ? 1 : 0.55,
          }));
          bottom += part;
        });
      }
      if (single) view.svg.append(make("line", { x1: view.left, x2: view.width - view.right, y1: view.Y(1), y2: view.Y(1), stroke: "var(--soft)", "stroke-dasharray": "4 3" }));
    });
    if (single) { find("legend").replaceChildren(html("span", "", "1 at the start. More: this situation decides much of the value; 0: it decides nothing any more.")); return; }
    legend(find("legend"), episode.weightNames.map((name, i) => {
      const level = step.levels.length && running(step) ? `, from here ${step.levels[i] >= 0.9995 ? "all" : "worst " + percent(step.levels[i])}` : "";
      return [`${name}${level}: ${percent(step.weights[i])}`, i];
    }));
  };
  const showActions = () => {
    const { section, step } = here();
    const host = find("actions");
    if (!running(step)) { host.replaceChildren(html("p", "hint", "The episode is over: there is nothing left to do.")); return; }
    if (Array.isArray(step.acts[0])) { showGrid(section, step); return; }
    const names = step.acts.map((action) => section.actionNames[action] || String(action));
    const [low, high] = padded([...step.worth], 0.12);
    const few = names.length <= 8;
    const label = `Value of each action at step ${step.t}: ` + names.map((name, i) => `${name} ${say(step.worth[i])}`).join(", ") + ".";
    chart("actions", { x: [-0.6, names.length - 0.4], y: [low, high], xName: few ? "" : `${names[0]}  …  ${names[names.length - 1]}`, whole: true, bare: true, label }, (view) => {
      for (const old of view.svg.querySelectorAll('text[text-anchor="middle"]')) if (old.textContent !== `${names[0]}  …  ${names[names.length - 1]}`) old.remove();
      const best = step.worth.indexOf(Math.max(...step.worth));
      step.worth.forEach((worth, i) => {
        const taken = i === step.taken;
        view.svg.append(make("line", { x1: view.X(i), x2: view.X(i), y1: view.Y(low), y2: view.Y(worth), stroke: taken ? "var(--orange)" : "var(--line)", "stroke-width": taken ? 3 : 2 }));
        view.svg.append(make("circle", { cx: view.X(i), cy: view.Y(worth), r: taken ? 6 : 4, fill: taken ? "var(--orange)" : "var(--card)", stroke: taken ? "var(--orange)" : "var(--soft)", "stroke-width": 1.5 }));
        if (few || taken) {
          view.svg.append(make("text", { x: Math.min(Math.max(view.X(i), view.left + 20), view.width - 34), y: few ? view.height - view.bottom + 16 : view.Y(worth) - 11, "text-anchor": "middle", class: taken ? "strong" : "" }, names[i]));
        }
      });
      if (best !== step.taken && step.worth[best] - step.worth[step.taken] > 1e-6) {
        view.svg.append(make("text", { x: view.width - view.right, y: view.height - 5, "text-anchor": "end", class: "strong" }, `highest: ${names[best]}`));
      }
    });
  };
  // A continuous action: a line of values along each dimension, through the action taken.
  const showGrid = (section, step) => {
    const { acts, worth, taken } = step, chosen = acts[taken], best = worth.indexOf(Math.max(...worth));
    const name = (i) => section.coordinates[i] || (chosen.length > 1 ? `coordinate ${i + 1}` : "action");
    const lines = chosen.map((_, i) => acts.map((act, j) => [act[i], worth[j], j])
      .filter(([, , j]) => j === taken || acts[j].every((value, k) => k === i || value === chosen[k])).sort((a, b) => a[0] - b[0]));
    const label = `Value of actions around the one taken at step ${step.t}: ` + lines.map((points, i) =>
      `${name(i)}: ` + points.map(([x, y]) => `${say(x)} ${say(y)}`).join(", ")).join("; ") + ".";
    chart("actions", { x: padded(acts.flat(), 0.04), y: padded([...worth], 0.12), xName: chosen.length > 1 ? "each coordinate, with the others held" : name(0), label }, (view) => {
      lines.forEach((points, i) => {
        const colour = "c" + (1 + i % (FEW - 1));
        view.svg.append(make("path", { d: line(points, view), class: "trace " + colour, "stroke-width": 1.8, fill: "none" }));
        for (const [x, y, j] of points) if (j !== taken) {
          const dot = make("circle", { cx: view.X(x), cy: view.Y(y), r: 3.2, class: "mark " + colour });
          dot.append(make("title", {}, `${name(i)} ${say(x)}: ${say(y)}`));
          view.svg.append(dot);
        }
      });
      lines.forEach((_, i) => {
        const dot = make("circle", { cx: view.X(chosen[i]), cy: view.Y(worth[taken]), r: 6, fill: "var(--orange)" });
        dot.append(make("title", {}, `${step.do}: ${say(worth[taken])}`));
        view.svg.append(dot);
      });
      view.svg.append(make("text", { x: Math.min(Math.max(view.X(chosen[0]), view.left + 24), view.width - 40), y: view.Y(worth[taken]) - 11, "text-anchor": "middle", class: "strong" }, chosen.length > 1 ? "taken" : step.do));
    });
    if (chosen.length > 1) {
      const host = html("p", "legend");
      legend(host, chosen.map((value, i) => [`${name(i)}: ${say(value)}`, 1 + i % (FEW - 1)]));
      find("actions").append(host);
    }
    if (worth[best] - worth[taken] > 1e-6) find("actions").append(html("p", "hint", `Highest: ${acts[best].map((value, i) => `${name(i)} ${say(value)}`).join(", ")}.`));
  };
  const showMarket = () => {
    const { section, episode, steps, step } = here();
    const price = episode.observationNames.indexOf("price");
    const held = episode.observationNames.indexOf("inventory");
    const box = find("environment");
    box.hidden = price < 0;
    if (price < 0) return;
    const option = section.boundary !== null;
    find("environment-title").textContent = option ? "Price, and where exercise begins" : "Price, trades and inventory";
    find("environment-hint").textContent = option
      ? "Blue: the price. Dashed: the policy exercises at this price or beyond it."
      : "Blue: the price. Up: buys, down: sells; the larger the more. Bars: what it holds.";
    const prices = steps.map((one) => one.observation[price]);
    const edge = (section.boundary || []).map((y, t) => [t, y]).filter(([t, y]) => y !== null && t <= steps[steps.length - 1].t);
    const range = padded([...prices, ...edge.map(([, y]) => y)], 0.18);
    chart("market", { x: times(), y: range, xName: "step", whole: true, height: 230, pick: nearest, label: `Price at each step; ${say(step.observation[price])} at step ${step.t}.` }, (view) => {
      if (held >= 0) {
        const most = Math.max(1e-9, ...steps.map((one) => Math.abs(one.observation[held])));
        const zero = (view.Y(view.y0) + view.top) / 2, unit = (view.Y(view.y0) - view.top) / 2.3 / most;
        const wide = Math.max(1.5, (view.X(1) - view.X(0)) * 0.5);
        for (const one of steps) {
          const size = one.observation[held] * unit;
          view.svg.append(make("rect", { x: view.X(one.t) - wide / 2, width: wide, y: size > 0 ? zero - size : zero, height: Math.abs(size), fill: "var(--fill)", opacity: 0.14 }));
        }
        view.svg.append(make("line", { x1: view.left, x2: view.width - view.right, y1: zero, y2: zero, stroke: "var(--fill)", opacity: 0.3 }));
      }
      if (edge.length) view.svg.append(make("path", { d: line(edge, view), stroke: "var(--orange)", fill: "none", "stroke-width": 1.6, "stroke-dasharray": "5 4" }));
      view.svg.append(make("path", { d: line(steps.map((one) => [one.t, one.observation[price]]), view), stroke: "var(--blue)", "stroke-width": 2, fill: "none" }));
      if (steps.length <= 80) for (const one of steps) {
        const match = /^(buy|sell) ([\d.]+)$/.exec(one.do);
        const x = view.X(one.t), y = view.Y(one.observation[price]);
        if (match) {
          const size = 4 + 3 * Math.min(2, +match[2]), up = match[1] === "buy" ? -1 : 1;
          view.svg.append(make("path", { d: `M${x - size} ${y - up * 2}L${x + size} ${y - up * 2}L${x} ${y + up * (size * 1.6)}Z`, fill: up < 0 ? "var(--green)" : "var(--orange)", stroke: "var(--card)" }));
        } else {
          view.svg.append(make("circle", { cx: x, cy: y, r: one.do === "exercise" ? 7 : 3.5, fill: one.do === "exercise" ? "var(--orange)" : "var(--blue)" }));
        }
      }
      cursor(view);
    });
  };
  const showStep = () => {
    const { step, steps, episode } = here();
    const slider = find("step");
    slider.max = steps.length - 1;
    slider.value = at.step;
    const last = steps[steps.length - 1].t;
    const said = step.a === null ? `End, after step ${last - 1}` : `Step ${step.t} of ${last - 1}`;
    slider.setAttribute("aria-valuetext", said + (step.do ? `: ${step.do}` : ""));
    find("where").textContent = said;
    find("words").textContent = step.words;
    find("thinned").hidden = episode.stride === 1;
    find("thinned").textContent = `A long episode: every ${episode.stride}th step is shown.`;
    find("back").disabled = at.step === 0;
    find("forth").disabled = at.step === steps.length - 1;
    showFacts(); showLevel(); showCurves(); showWeights(); showActions(); showMarket();
  };

  // --- returns, checks, comparison ----------------------------------------------------------------
  const columns = (section, view) => {
    const { low, high, counts } = section.histogram;
    const wide = (high - low) / counts.length, [line0] = section.lines;
    counts.forEach((count, i) => view.svg.append(make("rect", {
      x: view.X(low + i * wide), width: Math.max(0.5, view.X(low + (i + 1) * wide) - view.X(low + i * wide) - 0.6), y: view.Y(count), height: view.Y(0) - view.Y(count),
      fill: "var(--fill)", opacity: section.lines.length === 1 && low + (i + 0.5) * wide < line0 ? 0.85 : 0.4,
    })));
  };
  const showReturns = () => {
    const section = sections[at.agent];
    const { low, high, counts } = section.histogram;
    const most = Math.max(...counts);
    chart("returns", { x: padded([low, high, section.value], 0.02), y: [0, most * 1.15], yTicks: [], xName: "total of an episode", label: `Totals of ${section.evaluationEpisodes} episodes: value ${say(section.value)}, mean ${say(section.mean)}.` }, (view) => {
      columns(section, view);
      upright(section.mean, view, { stroke: "var(--ink)", "stroke-dasharray": "4 3" });
      upright(section.value, view, { stroke: "var(--orange)", "stroke-width": 2.4 }, `value ${say(section.value)}`);
      if (section.optimum !== null) upright(section.optimum, view, { stroke: "var(--green)", "stroke-width": 1.6 });
    });
    const highest = Math.min(12, Math.max(1.2, ...section.spectrum.map(([, y]) => y)));
    chart("spectrum", { x: [0, 1], y: [0, highest * 1.08], xName: "rank of the outcome, worst to best", label: `Spectrum of ${section.risk}.` }, (view) => {
      const points = section.spectrum.map(([u, y]) => [u, Math.min(y, highest)]);
      view.svg.append(make("path", { d: line([[points[0][0], 0], ...points, [1, 0]], view) + "Z", fill: "var(--orange)", opacity: 0.16 }));
      view.svg.append(make("path", { d: line(points, view), stroke: "var(--orange)", "stroke-width": 2.2, fill: "none" }));
      view.svg.append(make("line", { x1: view.X(0), x2: view.X(1), y1: view.Y(1), y2: view.Y(1), stroke: "var(--soft)", "stroke-dasharray": "4 3" }));
    });
  };
  const bars = (id, xs, ys, errors, target, options) => {
    chart(id, { x: padded(xs, 0.04), y: padded([...ys.map((y, i) => y + errors[i]), ...ys.map((y, i) => y - errors[i]), target], 0.08), xName: "step", whole: true, ...options }, (view) => {
      view.svg.append(make("line", { x1: view.left, x2: view.width - view.right, y1: view.Y(target), y2: view.Y(target), stroke: "var(--green)", "stroke-width": 1.6, "stroke-dasharray": "5 4" }));
      xs.forEach((x, i) => {
        const off = Math.abs(ys[i] - target) > errors[i] + 1e-9;
        const colour = off ? "var(--bad)" : "var(--blue)";
        view.svg.append(make("line", { x1: view.X(x), x2: view.X(x), y1: view.Y(ys[i] - errors[i]), y2: view.Y(ys[i] + errors[i]), stroke: colour, "stroke-width": 1.5 }));
        view.svg.append(make(off ? "rect" : "circle", off ? { x: view.X(x) - 4, y: view.Y(ys[i]) - 4, width: 8, height: 8, fill: colour } : { cx: view.X(x), cy: view.Y(ys[i]), r: 3.6, fill: colour }));
      });
    });
  };
  const showChecks = () => {
    const section = sections[at.agent], checks = section.calibration;
    find("check-words").textContent = section.verdict.words;
    find("check-figures").hidden = !checks;
    if (!checks) return;
    if (checks.xi.length) bars("xi", checks.times, checks.xi, checks.xiError, 1, { label: `Average of xi by step, which must be 1: ${checks.verdicts.levels}.` });
    else find("xi").replaceChildren(html("p", "hint", "The measure is the plain average: ξ is always 1."));
    bars("parts", checks.times, checks.parts, checks.partsError, checks.whole, { label: `Sum of the parts by step, which must be ${say(checks.whole)}: ${checks.verdicts.parts}.` });
  };
  const showComparison = () => {
    if (sections.length < 2) return;
    const shown = sections.slice(0, FEW);
    chart("all", { x: padded(shown.flatMap((one) => [one.quantiles[1], one.quantiles[97]]), 0.02), y: [0, 1.02], yTicks: [0, 0.25, 0.5, 0.75, 1], yText: percent, xName: "total of an episode", label: "Distributions of the totals of the agents." }, (view) => {
      shown.forEach((one, i) => view.svg.append(make("path", { d: stairs(one.quantiles, view), class: "trace c" + i, "stroke-width": 2, "stroke-dasharray": ["", "7 3", "2 3", "9 3 2 3", "4 4", "1 2"][i] })));
    });
    legend(find("all-legend"), [...shown.map((one, i) => [one.label, i])]);
    if (sections.length > FEW) find("all-legend").append(html("span", "", `the first ${FEW} of ${sections.length}`));
    if (data.frontier) return;
    const tail = (one) => one.values[data.tail];
    const xs = sections.map((one) => one.mean), ys = sections.map((one) => tail(one)[0]);
    chart("frontier", { x: padded(xs, 0.15), y: padded(ys, 0.15), xName: "mean of all episodes", label: "Mean against the mean of the worst fifth: " + sections.map((one) => `${one.label}: ${say(one.mean)}, ${say(tail(one)[0])}`).join("; ") + "." }, (view) => {
      const placed = [];
      sections.forEach((one, i) => {
        const [y, error] = tail(one), x = one.mean, colour = { class: "mark c" + (i % FEW) };
        view.svg.append(make("line", { x1: view.X(x), x2: view.X(x), y1: view.Y(y - 1.96 * error), y2: view.Y(y + 1.96 * error), stroke: "var(--soft)" }));
        view.svg.append(make("line", { x1: view.X(x - 1.96 * one.meanError), x2: view.X(x + 1.96 * one.meanError), y1: view.Y(y), y2: view.Y(y), stroke: "var(--soft)" }));
        view.svg.append(make("circle", { cx: view.X(x), cy: view.Y(y), r: 5.5, ...colour }));
        if (sections.length <= 8) {
          const late = view.X(x) > view.width * 0.6;
          let height = view.Y(y) - 7;
          while (placed.some((other) => Math.abs(other - height) < 12)) height += 13;
          placed.push(height);
          const short = [...one.label].slice(0, 26).join("") + ([...one.label].length > 26 ? "…" : "");
          view.svg.append(make("text", { x: view.X(x) + (late ? -9 : 9), y: height, "text-anchor": late ? "end" : "start", direction: "ltr", "unicode-bidi": "isolate" }, short));
        }
      });
    });
  };
  // --- the frontier -------------------------------------------------------------------------------
  const curve = data.frontier;
  const around = (value, low, high) => `${say(value)} (${say(low)} to ${say(high)})`;
  const showCurve = () => {
    const points = curve.points, exact = points.filter((one) => one.optimum !== null), kept = points.filter((one) => !one.dominated);
    const xs = points.flatMap((one) => [one.start_low, one.start_high]).concat(exact.map((one) => one.optimum_start));
    const ys = points.flatMap((one) => [one.end_low, one.end_high]).concat(exact.map((one) => one.optimum_end));
    const label = `${curve.start} against ${curve.end}: ` + points.map((one) => `${one.risk}: ${say(one.start)}, ${say(one.end)}${one.note ? ", " + one.note : ""}`).join("; ") + ".";
    const height = Math.max(260, Math.min(460, Math.round(0.5 * (find("curve").clientWidth || 600))));
    const labelled = [];
    const [low, high] = padded(ys, 0.09);
    chart("curve", { x: padded(xs, 0.05), y: [low, high], yTicks: ticks(low, high, height / 50), xName: `${curve.start} \u2192`, height, label }, (view) => {
      view.svg.append(make("text", { x: view.left + 5, y: view.top + 10 }, `\u2191 ${curve.end}`));
      view.svg.append(make("path", { d: line(exact.map((one) => [one.optimum_start, one.optimum_end]), view), stroke: "var(--green)", "stroke-width": 1.8, "stroke-dasharray": "6 4", fill: "none" }));
      for (const one of exact) view.svg.append(make("rect", { x: view.X(one.optimum_start) - 3, y: view.Y(one.optimum_end) - 3, width: 6, height: 6, fill: "var(--green)" }));
      view.svg.append(make("path", { d: line(kept.map((one) => [one.start, one.end]), view), stroke: "var(--blue)", "stroke-width": 2, fill: "none" }));
      points.forEach((one, i) => {
        const x = view.X(one.start), y = view.Y(one.end), here = i === at.agent, colour = one.dominated ? "var(--soft)" : "var(--blue)";
        view.svg.append(make("line", { x1: view.X(one.start_low), x2: view.X(one.start_high), y1: y, y2: y, stroke: colour, "stroke-width": 1.3 }));
        view.svg.append(make("line", { x1: x, x2: x, y1: view.Y(one.end_low), y2: view.Y(one.end_high), stroke: colour, "stroke-width": 1.3 }));
        if (one.knee) {
          view.svg.append(make("circle", { cx: x, cy: y, r: 11, fill: "none", stroke: "var(--amber)", "stroke-width": 2.4 }));
          view.svg.append(make("text", { x: x + 14, y: y - 10, class: "strong" }, "knee"));
        }
        view.svg.append(make("circle", { cx: x, cy: y, r: here ? 7 : 5.5, fill: here ? "var(--orange)" : one.dominated ? "var(--card)" : "var(--blue)", stroke: here ? "var(--orange)" : colour, "stroke-width": 1.6 }));
        if (one.dominated) view.svg.append(make("path", { d: `M${x - 4} ${y - 4}L${x + 4} ${y + 4}M${x - 4} ${y + 4}L${x + 4} ${y - 4}`, stroke: here ? "var(--card)" : "var(--soft)", "stroke-width": 1.6 }));
        if (labelled.every(([a, b]) => Math.abs(a - x) > 34 || Math.abs(b - y) > 12)) {
          labelled.push([x, y]);
          view.svg.append(make("text", { x: x - 9, y: y + 15, "text-anchor": "end" }, say(one.weight)));
        }
        const target = make("circle", { cx: x, cy: y, r: 15, fill: "transparent", "data-point": i });
        target.append(make("title", {}, `${one.risk}${one.note ? " (" + one.note + ")" : ""}`));
        target.addEventListener("click", () => choose(i));
        view.svg.append(target);
      });
    });
    const names = [["achieved, with its interval; small: weight of " + curve.end, 1], ["chosen", 0]];
    if (exact.length) names.push(["exact optimum of the same mixtures", 2]);
    if (points.some((one) => one.knee)) names.push(["ring: the knee", 4]);
    legend(find("curve-legend"), names);
    if (points.some((one) => one.dominated)) find("curve-legend").append(html("span", "", "\u00d7 dominated by another point"));
  };
  const showChosen = () => {
    const one = curve.points[at.agent], section = sections[at.agent], first = sections[0], last = sections[sections.length - 1];
    const rows = [[curve.dial ? "set to" : "trained for", one.risk], [curve.start, around(one.start, one.start_low, one.start_high)], [curve.end, around(one.end, one.end_low, one.end_high)]];
    rows.push(["own value", around(one.own, one.own_low, one.own_high)]);
    if (one.optimum !== null) rows.push(["best possible", say(one.optimum)], ["short of it", say(one.gap)]);
    if (one.seeds.own.length > 1) rows.push(["own value of each seed", one.seeds.own.map(say).join(", ")], ["shown below: seed", String(one.seed)]);
    rows.push(["episodes", `${section.evaluationEpisodes.toLocaleString("en")}, ${section.tailEpisodes.toLocaleString("en")} in the tail`]);
    if (one.note) rows.push(["mark", one.note]);
    const deeds = section.episodes[0].steps.map((step) => step.do).filter(Boolean);
    rows.push(["what it does in episode 1", deeds.slice(0, 12).join(", ") + (deeds.length > 12 ? ", \u2026" : "")]);
    find("chosen").replaceChildren(...rows.map(([name, value]) => {
      const row = html("tr"), head = html("th", "", name);
      head.scope = "row";
      row.append(head, html("td", "", value));
      return row;
    }));
    [...find("points").tBodies[0].rows].forEach((row, i) => row.classList.toggle("chosen", i === at.agent));
    const all = [first, last, section];
    const range = padded([Math.min(...all.map((c) => c.histogram.low)), Math.max(...all.map((c) => c.histogram.high))], 0.02);
    const share = (c) => c.evaluationEpisodes * (c.histogram.high - c.histogram.low) / c.histogram.counts.length;
    const unit = share(section), tallest = Math.max(...all.map((c) => Math.max(...c.histogram.counts) / share(c))) * unit;
    const most = Math.min(tallest, 2.5 * Math.max(...section.histogram.counts));
    chart("chosen-returns", { x: range, y: [0, most * 1.1], yTicks: [], xName: "total of an episode", label: `Totals of ${section.evaluationEpisodes} episodes: ${curve.start} ${say(one.start)}, ${curve.end} ${say(one.end)}.` }, (view) => {
      columns(section, view);
      [[first, "var(--pink)"], [last, "var(--green)"]].forEach(([other, colour]) => {
        const { low, high, counts } = other.histogram, wide = (high - low) / counts.length;
        const top = counts.map((count, i) => [low + (i + 0.5) * wide, Math.min(count / share(other) * unit, most * 1.1)]);
        view.svg.append(make("path", { d: line(top, view), stroke: colour, "stroke-width": 1.6, fill: "none" }));
      });
    });
    legend(find("chosen-legend"), [[curve.start, 3], [curve.end, 2]]);
  };
  // What the policy does by step: bands of a continuous or ordered action, shares of unordered ones.
  const showDeeds = () => {
    if (!curve.deeds) return;
    const { times, quantiles, quantileNames, shares, shareNames, worst, episodes } = curve.deeds[at.agent];
    const across = [times[0] - 0.5, times[times.length - 1] + 0.5];
    const all = (pick) => curve.deeds.flatMap((one) => pick(one));
    if (quantiles) {
      const range = padded(all((one) => one.quantiles.flat(2)), 0.06);
      const label = `Action by step: median ${quantiles.map((rows, i) => `${quantileNames[i]} ${rows.map((row) => say(row[2])).join(", ")}`).join("; ")}.`;
      chart("deeds", { x: across, y: range, xName: "step", whole: true, label }, (view) => quantiles.forEach((rows, i) => {
        const colour = `c${(i + 1) % FEW}`;
        for (const [low, high, opacity] of [[0, 4, 0.16], [1, 3, 0.3]]) {
          const outline = [...rows.map((row, j) => [times[j], row[high]]), ...rows.map((row, j) => [times[j], row[low]]).reverse()];
          view.svg.append(make("path", { d: line(outline, view) + "Z", class: "mark " + colour, opacity }));
        }
        view.svg.append(make("path", { d: line(rows.map((row, j) => [times[j], row[2]]), view), class: "trace " + colour, "stroke-width": 2.2 }));
      }));
      legend(find("deeds-legend"), quantileNames.map((name, i) => [name, i + 1]));
      find("deeds-hint").textContent = `Line: the median action. Dark: half of ${episodes.toLocaleString("en")} episodes; light: nine in ten.`;
    } else {
      const label = `Share of each action by step: ${shareNames.map((name, i) => `${name} ${shares.map((row) => percent(row[i])).join(", ")}`).join("; ")}.`;
      chart("deeds", { x: across, y: [0, 1.02], yTicks: [0, 0.5, 1], yText: percent, xName: "step", whole: true, bare: true, label }, (view) => shares.forEach((row, j) => {
        const wide = Math.max(1.5, (view.X(1) - view.X(0)) * 0.78 * (times.length > 1 ? times[1] - times[0] : 1));
        let bottom = 0;
        row.forEach((share, i) => {
          view.svg.append(make("rect", { class: "mark c" + (i % FEW), x: view.X(times[j]) - wide / 2, width: wide, y: view.Y(bottom + share), height: Math.max(0, view.Y(bottom) - view.Y(bottom + share)) }));
          bottom += share;
        });
      }));
      legend(find("deeds-legend"), shareNames.map((name, i) => [name, i]));
      find("deeds-hint").textContent = `The share of ${episodes.toLocaleString("en")} episodes that take each action, of those that are still running.`;
    }
    const paths = all((one) => one.worst.flatMap((episode) => episode.path.map(([, value]) => value)));
    const label = `Earned by step in the worst episodes; totals ${worst.map((one) => say(one.total)).join(", ")}.`;
    chart("worst", { x: [-0.4, worst[0].path[worst[0].path.length - 1][0] + 0.4], y: padded(paths, 0.05), xName: "step", whole: true, label }, (view) => {
      worst.forEach((one, i) => view.svg.append(make("path", { d: line(one.path, view), stroke: "var(--orange)", fill: "none", "stroke-width": i ? 1.3 : 2.6, opacity: i ? 0.6 : 1 })));
    });
    find("worst-rows").replaceChildren(...worst.map((one) => {
      const row = html("tr"), head = html("th", "", String(one.number));
      head.scope = "row";
      row.append(head, ...[one.total, one.last, one.first].map((value) => html("td", "number", say(value))));
      return row;
    }));
  };
  const showDial = () => {
    const one = curve.points[at.agent], dial = find("dial"), said = `${one.risk}: ${say(one.own)}`;
    dial.value = curve.points.length - 1 - at.agent;
    dial.setAttribute("aria-valuetext", `${said}; ${curve.start} ${say(one.start)}, ${curve.end} ${say(one.end)}`);
    find("dial-where").textContent = said;
  };
  const showFrontier = () => { if (curve) { showDial(); showCurve(); showChosen(); showDeeds(); } };
  const choose = (index) => { at.agent = index; find("agent").value = index; showAgent(); };

  const sortBy = (column) => {
    const table = find("table"), heads = [...table.tHead.rows[0].cells];
    const head = heads[column];
    const number = head.classList.contains("number");
    const order = head.getAttribute("aria-sort") === (number ? "descending" : "ascending") ? (number ? "ascending" : "descending") : (number ? "descending" : "ascending");
    heads.forEach((one) => one.setAttribute("aria-sort", one === head ? order : "none"));
    const key = (row) => { const cell = row.cells[column]; return number ? (cell.dataset.value === "" ? -Infinity : +cell.dataset.value) : cell.textContent.trim(); };
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows].sort((a, b) => { const x = key(a), y = key(b); return sign * (x < y ? -1 : x > y ? 1 : 0); });
    table.tBodies[0].append(...rows);
  };

  // --- wiring -------------------------------------------------------------------------------------
  const options = (select, names) => select.replaceChildren(...names.map((name, i) => { const one = html("option", "", name); one.value = i; return one; }));
  const showAgent = () => {
    const section = sections[at.agent];
    at.episode = Math.min(at.episode, section.episodes.length - 1);
    options(find("episode"), section.episodes.map((one, i) => `${i + 1}: total ${say(one.total)}`));
    find("episode").value = at.episode;
    at.step = Math.min(at.step, section.episodes[at.episode].steps.length - 1);
    showStep(); showReturns(); showChecks(); showFrontier();
  };
  options(find("agent"), sections.map((one) => one.label));
  if (curve) at.agent = Math.max(0, curve.points.findIndex((one) => one.knee));
  find("agent").value = at.agent;
  find("agent").parentElement.hidden = sections.length === 1;
  find("agent").addEventListener("change", (event) => { at.agent = +event.target.value; showAgent(); });
  find("episode").addEventListener("change", (event) => { at.episode = +event.target.value; at.step = 0; showStep(); });
  find("step").addEventListener("input", (event) => go(+event.target.value));
  find("back").addEventListener("click", () => go(at.step - 1));
  find("forth").addEventListener("click", () => go(at.step + 1));
  [...find("table").tHead.rows[0].cells].forEach((cell, i) => cell.firstElementChild.addEventListener("click", () => sortBy(i)));
  if (curve) [...find("points").tBodies[0].rows].forEach((row, i) => row.cells[0].firstElementChild.addEventListener("click", () => choose(i)));
  if (curve) find("dial").addEventListener("input", (event) => choose(curve.points.length - 1 - event.target.value));
  let waiting = false;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (waiting || window.innerWidth === width) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; width = window.innerWidth; showStep(); showReturns(); showChecks(); showComparison(); showFrontier(); });
  });
  showAgent();
  showComparison();
  document.documentElement.dataset.ready = "yes";
})();
