// Whatever an event says is text: nothing of it is ever parsed as HTML.
"use strict";

const EVERY = 1000;
const COLUMNS = {
  services: ["serviceId", "env", "region", "status", "version", "lastHeartbeatAt", "updatedAt"],
  pipelines: ["pipelineId", "env", "region", "status", "lagSeconds", "lastHeartbeatAt", "updatedAt"],
};

function element(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text ?? "";
  return made;
}

function row(tag, cells) {
  const made = document.createElement("tr");
  made.append(...cells.map((cell) => element(tag, cell)));
  return made;
}

function show(health) {
  for (const [name, columns] of Object.entries(COLUMNS)) {
    const rows = health[name].map((one) => {
      const made = row("td", columns.map((column) => one[column]));
      made.dataset.id = one.id;
      made.dataset.status = one.status;
      made.title = `message ${one.source.messageId} of ${one.source.topic}`;
      return made;
    });
    document.getElementById(name).replaceChildren(row("th", columns), ...rows);
  }
  document.getElementById("alerts").replaceChildren(...health.alerts.map((alert) => element("li", alert)));
  const counts = Object.entries(health.counts).map(([name, number]) => `${number} ${name}`);
  document.getElementById("state").textContent = `in the last day, as of a minute ago: ${counts.join(", ")}`;
}

async function refresh() {
  try {
    const answer = await fetch("/health");
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show(await answer.json());
    document.body.dataset.fresh = "yes";
  } catch (error) {
    document.body.dataset.fresh = "no";
    document.getElementById("state").textContent = `this is old: ${error.message}`;
  }
  setTimeout(refresh, EVERY);
}

refresh();
