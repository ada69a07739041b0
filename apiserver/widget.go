package apiserver

import (
	"bytes"
	"net/http"
	"time"
)

// widget serves the script that shops include in pages of other origins. Browsers keep it for five minutes, so that a fix reaches
// every shop soon.
func (a *publicAPI) widget(w http.ResponseWriter, r *http.Request) error {
	asset, tag := a.pages.Widget()
	header := w.Header()
	header["Access-Control-Allow-Origin"] = anyOrigin
	header.Set("Cross-Origin-Resource-Policy", "cross-origin") // for pages with Cross-Origin-Embedder-Policy
	header.Set("Cache-Control", "public, max-age=300")
	header.Set("Vary", "Accept-Encoding")
	header.Set("ETag", `W/"`+tag+`"`) // weak: it is of both encodings
	header.Set("Content-Type", asset.ContentType)
	content := asset.Content
	if acceptsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		content = asset.Gzipped
	}
	r.Header.Del("Range") // a script is loaded as a whole
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	return nil
}
