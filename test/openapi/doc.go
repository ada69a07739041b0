// Package openapi generates clients from the OpenAPI documents with the generators that integrators use, and compiles them.
package openapi
