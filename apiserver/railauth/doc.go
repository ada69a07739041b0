// Package railauth says who may settle sessions: it asks the Kubernetes API whose a token is
// (TokenReview) and whether that account may post to the settlement path (SubjectAccessReview), and
// remembers the verdict for some seconds. It knows neither HTTP nor sessions. docs/design/rail.md
// says why it is not the authenticator of k8s.io/apiserver.
package railauth
