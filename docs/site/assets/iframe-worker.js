// A page that is opened as a file may not start a Worker, which search runs in. There, one is made of a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      document.body.appendChild(this.frame);
      this.inner = this.frame.contentWindow;
      const page = this.inner.document;
      page.open();
      page.write(
        "<!doctype html><script>" +
          "function postMessage(data) { parent.postMessage(data, '*') }" +
          "function importScripts(...urls) { return Promise.all(urls.map((url) => new Promise((done, failed) => {" +
          "  const script = document.createElement('script');" +
          "  Object.assign(script, { src: url, onload: done, onerror: failed });" +
          "  document.body.appendChild(script) }))) }" +
          `<\/script><script src="${url}"><\/script><body></body>`,
      );
      page.close();
      window.addEventListener("message", (event) => {
        if (event.source !== this.inner) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      this.loaded = new Promise((done) => this.inner.addEventListener("load", done));
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
