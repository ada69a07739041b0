// Comforts only: every page works without this.

const { lang } = document.documentElement;
const locales = [...navigator.languages.filter((one) => one.split("-")[0] === lang), lang]; // the viewer's own, of the language of the page
const format = new Intl.DateTimeFormat(locales, { dateStyle: "medium", timeStyle: "short" });
for (const time of document.querySelectorAll("time[datetime]")) time.title = format.format(new Date(time.dateTime)); // the viewer's own

const { copyButton, copyDone, copySelected } = document.body.dataset;
for (const text of document.querySelectorAll("[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = copyButton;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = copyDone;
    } catch {
      getSelection().selectAllChildren(text);
      button.textContent = copySelected;
    }
  });
  text.after(button);
}

// A browser may keep the page to show it again on "back". A key must not be in it.
addEventListener("pagehide", () => {
  for (const secret of document.querySelectorAll("[data-secret]")) secret.textContent = "";
});
