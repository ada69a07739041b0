package apiserver

import (
	_ "embed" // the document is a file that people read, too
	"net/http"
)

//go:embed openapi.yaml
var openAPIDocument []byte

// openAPI serves the description of this API.
func openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPIDocument)
	return nil
}
