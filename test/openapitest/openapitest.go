// Package openapitest loads the OpenAPI documents for tests, which check responses and events against them.
//
// The published documents are open: clients ignore what they do not know, so that a later version can add it. A test is the opposite of such
// a client: what the service sends and the document lacks is a mistake. Closed puts the difference back.
package openapitest

import (
	"fmt"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// The published documents, files of apiserver/.
const (
	Public   = "openapi.yaml"
	Internal = "internal-openapi.yaml"
)

// Open returns a document as clients see it. The error is also of a document that is no valid OpenAPI.
func Open(file string) (*openapi3.T, error) {
	loader := openapi3.NewLoader()
	document, err := loader.LoadFromFile(repository.Path("apiserver", file))
	if err != nil {
		return nil, err
	}
	if err := document.Validate(loader.Context); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return document, nil
}

// Closed returns a document that refuses fields that its objects do not have, and words that its extensible lists do not have.
func Closed(file string) (*openapi3.T, error) {
	document, err := Open(file)
	if err != nil {
		return nil, err
	}
	err = document.WalkSchemas(func(_ string, ref *openapi3.SchemaRef) error {
		schema := ref.Value
		if words, ok := schema.Extensions["x-extensible-enum"].([]any); ok {
			schema.Enum = words
		}
		// A schema that only adds conditions to an object, such as an if, has no type.
		if schema.Type.Is(openapi3.TypeObject) && len(schema.Properties) > 0 {
			schema.AdditionalProperties = openapi3.AdditionalProperties{Has: new(bool)}
		}
		return nil
	})
	return document, err
}
