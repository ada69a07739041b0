package manifests

import (
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// right is one line of the tables below: verbs on a resource, as "group/resource/subresource", in a namespace.
type right struct {
	verbs     string
	resource  string
	namespace string // empty: all namespaces, or no namespace
}

const allVerbs = "get list watch create update patch delete deletecollection"

func TestRights_Operator(t *testing.T) {
	install(t, "rbac")
	account := serviceAccount("merchant-operator")
	assertRights(t, account, true, []right{
		{"get list watch patch", "merchant-operator.io/merchants", ""},
		{"get list watch patch", "merchant-operator.io/apikeys", ""},
		{"patch", "merchant-operator.io/merchants/status", tenant},
		{"patch", "merchant-operator.io/apikeys/status", tenant},
		{"get list watch create update delete", "/secrets", tenant},
		{"get list watch create update delete", "/secrets", credentials},
		{"get list watch create update delete", "/configmaps", credentials},
		{"create", "events.k8s.io/events", tenant},
		{"get create update", "coordination.k8s.io/leases", credentials},
		{"create patch", "/events", credentials},
	})
	assertRights(t, account, false, []right{
		// It manages what people wrote; it neither writes nor removes it.
		{"create update delete deletecollection", "merchant-operator.io/merchants", tenant},
		{"create update delete deletecollection", "merchant-operator.io/apikeys", tenant},
		{"deletecollection", "/secrets", credentials},
		{"deletecollection", "/secrets", tenant},
		{"deletecollection", "/configmaps", credentials},
		{allVerbs, "/configmaps", tenant},
		{allVerbs, "/configmaps", system},
		{allVerbs, "/pods", tenant},
		{"create", "/pods/exec", system},
		{"create patch", "/events", tenant},
		{"get list watch patch delete", "events.k8s.io/events", tenant},
		{allVerbs, "coordination.k8s.io/leases", tenant},
		{allVerbs, "coordination.k8s.io/leases", system},
		{"delete", "coordination.k8s.io/leases", credentials},
		{allVerbs, "/namespaces", ""},
		{allVerbs + " bind escalate", "rbac.authorization.k8s.io/clusterroles", ""},
		{allVerbs, "rbac.authorization.k8s.io/rolebindings", credentials},
		{"create", "/serviceaccounts/token", system},
		{"impersonate", "/users", ""},
		{"create", "authentication.k8s.io/tokenreviews", ""},
	})
}

func TestRights_APIServer(t *testing.T) {
	install(t, "rbac")
	account := serviceAccount("merchant-operator-apiserver")
	assertRights(t, account, true, []right{
		{"get list watch update", "/secrets", credentials},
		{"get list watch", "/configmaps", credentials},
		{"create", "authentication.k8s.io/tokenreviews", ""},
		{"create", "authorization.k8s.io/subjectaccessreviews", ""},
	})
	assertRights(t, account, false, []right{
		// The API neither creates nor deletes a key, and never writes a merchant.
		{"create patch delete deletecollection", "/secrets", credentials},
		{"create update patch delete deletecollection", "/configmaps", credentials},
		// Delivered keys, and its own Redis URL, are out of its sight.
		{allVerbs, "/secrets", tenant},
		{allVerbs, "/secrets", system},
		{allVerbs, "/secrets", ""},
		{allVerbs, "/configmaps", ""},
		{allVerbs, "merchant-operator.io/merchants", ""},
		{allVerbs, "merchant-operator.io/apikeys", ""},
		{"update patch", "merchant-operator.io/apikeys/status", tenant},
		{allVerbs, "/pods", system},
		{allVerbs, "coordination.k8s.io/leases", system},
		{allVerbs, "events.k8s.io/events", tenant},
		{"create", "/serviceaccounts/token", system},
		{"impersonate", "/users", ""},
		{allVerbs, "rbac.authorization.k8s.io/rolebindings", credentials},
	})
}

func TestRights_Dispatcher(t *testing.T) {
	install(t, "rbac")
	account := serviceAccount("merchant-operator-dispatcher")
	assertRights(t, account, true, []right{
		{"get list watch", "/secrets", credentials},
		{"get list watch", "/configmaps", credentials},
		{"patch", "merchant-operator.io/merchants/status", tenant},
		{"create patch", "events.k8s.io/events", tenant},
	})
	for shard := range published.LastUseShards {
		if !mayUpdate(t, account, published.LastUseName(shard)) {
			t.Errorf("%s may not update %s", account, published.LastUseName(shard))
		}
	}
	if mayUpdate(t, account, "merchant-abcdefgh2345") {
		t.Error("the dispatcher may update a published merchant")
	}
	assertRights(t, account, false, []right{
		// It signs with what is published, and publishes only the last uses of keys.
		{"create update patch delete deletecollection", "/secrets", credentials},
		{"create update patch delete deletecollection", "/configmaps", credentials},
		{allVerbs, "/secrets", tenant},
		{allVerbs, "/secrets", system},
		{allVerbs, "/configmaps", tenant},
		// Of a Merchant it writes one condition, and reads nothing.
		{allVerbs, "merchant-operator.io/merchants", tenant},
		{"get update", "merchant-operator.io/merchants/status", tenant},
		{allVerbs, "merchant-operator.io/apikeys", tenant},
		{"patch", "merchant-operator.io/apikeys/status", tenant},
		{"get list watch delete", "events.k8s.io/events", tenant},
		{"create patch", "/events", tenant},
		{"create", "authentication.k8s.io/tokenreviews", ""},
		{"create", "authorization.k8s.io/subjectaccessreviews", ""},
		{allVerbs, "coordination.k8s.io/leases", system},
		{"create", "/serviceaccounts/token", system},
		{"impersonate", "/users", ""},
	})
	assertMayPost(t, account, false, settlement)
}

const settlement = "/internal/v1/sessions/ps_aaaaaaaaaaaaghijklmnopqrstuvwx/settlement"

func TestRights_Rail(t *testing.T) {
	install(t, "crd")
	install(t, "rbac")
	install(t, "samples")
	const rail = "system:serviceaccount:rails:card-rail"
	assertMayPost(t, rail, true, settlement)
	assertMayPost(t, rail, false, "/internal/v1/other", "/internal/v1/sessions", "/metrics", "/")
	assertRights(t, rail, false, []right{
		{allVerbs, "/secrets", credentials},
		{allVerbs, "/configmaps", credentials},
		{allVerbs, "/secrets", tenant},
		{allVerbs, "merchant-operator.io/merchants", tenant},
		{allVerbs, "merchant-operator.io/apikeys", tenant},
		{"create", "/serviceaccounts/token", "rails"},
	})
	assertMayPost(t, "system:serviceaccount:rails:default", false, settlement)
	assertMayPost(t, serviceAccount("merchant-operator"), false, settlement)
	assertMayPost(t, serviceAccount("merchant-operator-apiserver"), false, settlement)
}

const (
	rotation = "/internal/v1/keys/{keyID}/rotate"
	signing  = "/internal/v1/merchants/{merchantID}/signing-secret"
)

// Everybody else, also in the programs' own namespace, is kept out of the credentials namespace.
func TestRights_Others(t *testing.T) {
	install(t, "rbac")
	for _, account := range []string{"system:serviceaccount:" + system + ":default", "system:serviceaccount:" + tenant + ":default"} {
		assertRights(t, account, false, []right{
			{allVerbs, "/secrets", credentials},
			{allVerbs, "/configmaps", credentials},
			{allVerbs, "merchant-operator.io/apikeys", tenant},
		})
	}
}

func serviceAccount(name string) string { return "system:serviceaccount:" + system + ":" + name }

// assertRights asks the API server, which answers for what it would do.
func assertRights(t *testing.T, account string, want bool, rights []right) {
	t.Helper()
	for _, r := range rights {
		group, resource, _ := strings.Cut(r.resource, "/")
		resource, subresource, _ := strings.Cut(resource, "/")
		for verb := range strings.FieldsSeq(r.verbs) {
			allowed := review(t, account, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource,
			}})
			if allowed != want {
				t.Errorf("%s may %s %s in namespace %q: %t, want %t", account, verb, r.resource, r.namespace, allowed, want)
			}
		}
	}
}

// mayUpdate reports whether the account may update that ConfigMap in the credentials namespace.
func mayUpdate(t *testing.T, account, name string) bool {
	t.Helper()
	return review(t, account, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: credentials, Verb: "update", Resource: "configmaps", Name: name,
	}})
}

// assertMayPost asks for paths that are no Kubernetes resource's.
func assertMayPost(t *testing.T, account string, want bool, paths ...string) {
	t.Helper()
	for _, path := range paths {
		allowed := review(t, account, authorizationv1.SubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "post", Path: path},
		})
		if allowed != want {
			t.Errorf("%s may post %s: %t, want %t", account, path, allowed, want)
		}
	}
}

func review(t *testing.T, account string, spec authorizationv1.SubjectAccessReviewSpec) bool {
	t.Helper()
	namespace := strings.Split(account, ":")[2]
	spec.User = account
	spec.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	answer := &authorizationv1.SubjectAccessReview{Spec: spec}
	if err := cluster.Client.Create(t.Context(), answer); err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}

func TestRights_Console(t *testing.T) {
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
func TestRights_People(t *testing.T) {
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
