// Package golang is a module of its own, so that what generates Go clients and what they import is none of the product's.
package golang

import _ "github.com/oapi-codegen/runtime" // imported by the generated clients
