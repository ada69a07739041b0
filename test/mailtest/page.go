package mailtest

import (
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
)

// Handler shows what the server has received: GET /messages as JSON, the oldest first; GET / as a page, the newest first.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /messages", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(append([]Message{}, s.Messages()...)) // never nil, which JSON writes as null
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		messages := s.Messages()
		slices.Reverse(messages)
		_ = page.Execute(w, messages)
	})
	return mux
}

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="3">
<title>Mails</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem }
article { border: 1px solid #ccc; border-radius: .5rem; padding: 0 1rem; margin: 1rem 0 }
pre { white-space: pre-wrap }
</style>
<h1>Mails</h1>
{{range .}}<article>
<h2>{{.Subject}}</h2>
<p>To {{.To}}, {{.ReceivedAt.Format "15:04:05"}}</p>
<pre>{{.Text}}</pre>
</article>
{{else}}<p>No mail yet. A payment whose charge has a <code>customerEmail</code> sends one.</p>
{{end}}</html>
`))
