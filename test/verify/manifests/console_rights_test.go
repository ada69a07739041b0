package manifests

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
)

func TestWhatTheConsoleMayDo(t *testing.T) {
	install(t, "rbac")
	install(t, "console/rbac")
	account := serviceAccount("merchant-operator-console")
	assertRights(t, account, true, []right{
		{"get list watch patch", "merchant-operator.io/merchants", ""},
		{"get list create patch delete", "merchant-operator.io/apikeys", ""},
		{"list create", "events.k8s.io/events", tenant},
		{"create", "authorization.k8s.io/subjectaccessreviews", ""},
	})
	assertMayPost(t, account, true, rotation, signing)
	assertMayPost(t, account, false, settlement, "/internal/v1/merchants/abcdefgh2345/signing-secret", "/internal/v1/merchants", "/internal/v1/keys/abcdefgh2345/rotate", "/internal/v1/keys", "/internal/v1/other")
	for _, namespace := range []string{"", credentials, system, tenant} {
		assertRights(t, account, false, []right{
			{allVerbs, "/secrets", namespace},
			{allVerbs, "/configmaps", namespace},
			{"create", "/serviceaccounts/token", namespace},
			{allVerbs, "/pods", namespace},
			{"create", "/pods/exec", namespace},
			{allVerbs + " bind escalate", "rbac.authorization.k8s.io/roles", namespace},
			{allVerbs, "rbac.authorization.k8s.io/rolebindings", namespace},
		})
	}
	assertRights(t, account, false, []right{
		// It is nobody but itself: what a person may do, it asks.
		{"impersonate", "/users", ""},
		{"impersonate", "/groups", ""},
		{"impersonate", "/serviceaccounts", system},
		{"impersonate", "authentication.k8s.io/userextras", ""},
		{"impersonate", "authentication.k8s.io/uids", ""},
		{"create", "authentication.k8s.io/tokenreviews", ""},
		// The verbs are people's.
		{"viewpayments issuekeys rotatekeys editallowlist editwebhook", "merchant-operator.io/merchants", tenant},
		{"create update delete deletecollection", "merchant-operator.io/merchants", tenant},
		{"update deletecollection", "merchant-operator.io/apikeys", tenant},
		{"update patch", "merchant-operator.io/merchants/status", tenant},
		{"update patch", "merchant-operator.io/apikeys/status", tenant},
	})
	assertMayPost(t, "system:serviceaccount:rails:card-rail", false, rotation, signing)
	assertMayPost(t, serviceAccount("merchant-operator-apiserver"), false, rotation, signing)
}

// The roles for people are bound to groups of the OpenID provider, in a namespace or for one merchant.
func TestWhatPeopleMayDo(t *testing.T) {
	install(t, "crd")
	install(t, "rbac")
	install(t, "samples")
	kubectl(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewers, namespace: shops}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: merchant-operator-merchant-viewer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:viewers"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: integrators, namespace: shops}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: merchant-operator-merchant-integrator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:integrators"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bookkeepers, namespace: shops}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: merchant-operator-merchant-bookkeeper}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:bookkeepers"}]
`, "apply", "-f", "-")
	const see, act, write = "get list watch", "issuekeys rotatekeys editallowlist editwebhook", "create update patch delete deletecollection"
	for group, want := range map[string]struct{ payments, acts bool }{
		"oidc:viewers": {false, false}, "oidc:bookkeepers": {true, false}, "oidc:integrators": {true, true},
	} {
		may := func(verbs, resource, namespace string, want bool) {
			t.Helper()
			for verb := range strings.FieldsSeq(verbs) {
				answer := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: "oidc:ann", Groups: []string{group},
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: namespace, Verb: verb, Group: "merchant-operator.io", Resource: resource, Name: "acme-coffee",
					},
				}}
				if err := cluster.Client.Create(t.Context(), answer); err != nil {
					t.Fatal(err)
				}
				if answer.Status.Allowed != want {
					t.Errorf("%s may %s %s in %s: %t, want %t", group, verb, resource, namespace, answer.Status.Allowed, want)
				}
			}
		}
		may(see, "merchants", tenant, true)
		may(see, "apikeys", tenant, true)
		may("viewpayments", "merchants", tenant, want.payments)
		may(act, "merchants", tenant, want.acts)
		may(write, "merchants", tenant, false)
		may(write, "apikeys", tenant, false)
		may(see+" viewpayments "+act, "merchants", "default", false)
	}
}
