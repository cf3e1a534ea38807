// Event data is inserted as text and never parsed as HTML.
"use strict";

const REFRESH_INTERVAL = 1000;
const COLUMNS = {
  services: ["serviceId", "env", "region", "status", "version", "lastHeartbeatAt", "updatedAt"],
  pipelines: ["pipelineId", "env", "region", "status", "lagSeconds", "lastHeartbeatAt", "updatedAt"],
};

function element(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text ?? "";
  return node;
}

function row(tag, cells) {
  const node = document.createElement("tr");
  node.append(...cells.map((cell) => element(tag, cell)));
  return node;
}

function show(health) {
  for (const [name, columns] of Object.entries(COLUMNS)) {
    const rows = health[name].map((one) => {
      const node = row("td", columns.map((column) => one[column]));
      node.dataset.id = one.id;
      node.dataset.status = one.status;
      node.title = `message ${one.source.messageId} of ${one.source.topic}`;
      return node;
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
    document.getElementById("state").textContent = `outdated: ${error.message}`;
  }
  setTimeout(refresh, REFRESH_INTERVAL);
}

refresh();
