// Package authz says who may call one path of ours: it asks the Kubernetes API whose a token is (TokenReview) and whether
// that account may (SubjectAccessReview), and remembers the verdict for some seconds. Rails and readers of metrics are
// told apart from everybody else by it. It knows neither HTTP nor sessions, and belongs to all roles. docs/design/rail.md
// says why it is not the authenticator of k8s.io/apiserver.
package authz
