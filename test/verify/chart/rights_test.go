package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/api/published"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rights are all that the chart grants, written down. A change of a rule is a change of this list.
const rights = `
merchant-operator everywhere: create delete get list update watch secrets
merchant-operator everywhere: create events.events.k8s.io
merchant-operator everywhere: get list patch watch apikeys.merchant-operator.io
merchant-operator everywhere: get list patch watch merchants.merchant-operator.io
merchant-operator everywhere: patch apikeys/status.merchant-operator.io
merchant-operator everywhere: patch merchants/status.merchant-operator.io
merchant-operator in merchant-operator-credentials: create delete get list update watch configmaps
merchant-operator in merchant-operator-credentials: create delete get list update watch secrets
merchant-operator in merchant-operator-credentials: create get update leases.coordination.k8s.io
merchant-operator-apiserver everywhere: all of system:auth-delegator
merchant-operator-apiserver in merchant-operator-credentials: get list update watch secrets
merchant-operator-apiserver in merchant-operator-credentials: get list watch configmaps
merchant-operator-console everywhere: create delete get list patch watch apikeys.merchant-operator.io
merchant-operator-console everywhere: create list events.events.k8s.io
merchant-operator-console everywhere: create subjectaccessreviews.authorization.k8s.io
merchant-operator-console everywhere: get /internal/v1/keys/accepted
merchant-operator-console everywhere: get list patch watch merchants.merchant-operator.io
merchant-operator-console everywhere: post /internal/v1/keys/{keyID}/rotate
merchant-operator-console everywhere: post /internal/v1/merchants/{merchantID}/signing-secret
merchant-operator-dispatcher everywhere: create patch events.events.k8s.io
merchant-operator-dispatcher everywhere: patch merchants/status.merchant-operator.io
merchant-operator-dispatcher in merchant-operator-credentials: get list watch configmaps
merchant-operator-dispatcher in merchant-operator-credentials: get list watch secrets
merchant-operator-dispatcher in merchant-operator-credentials: update configmaps last-uses-0 last-uses-1 last-uses-2 last-uses-3 last-uses-4 last-uses-5 last-uses-6 last-uses-7 last-uses-8 last-uses-9 last-uses-10 last-uses-11 last-uses-12 last-uses-13 last-uses-14 last-uses-15 last-uses-16 last-uses-17 last-uses-18 last-uses-19 last-uses-20 last-uses-21 last-uses-22 last-uses-23 last-uses-24 last-uses-25 last-uses-26 last-uses-27 last-uses-28 last-uses-29 last-uses-30 last-uses-31 last-uses-32 last-uses-33 last-uses-34 last-uses-35 last-uses-36 last-uses-37 last-uses-38 last-uses-39 last-uses-40 last-uses-41 last-uses-42 last-uses-43 last-uses-44 last-uses-45 last-uses-46 last-uses-47 last-uses-48 last-uses-49 last-uses-50 last-uses-51 last-uses-52 last-uses-53 last-uses-54 last-uses-55 last-uses-56 last-uses-57 last-uses-58 last-uses-59 last-uses-60 last-uses-61 last-uses-62 last-uses-63
`

func TestRights_AsWritten(t *testing.T) {
	if diff := cmp.Diff(lines(rights), grants(t, render(t, withConsole).stream())); diff != "" {
		t.Errorf("rights (-written down +granted):\n%s", diff)
	}
}

// rightsToBind are the rights of the roles that the platform team binds to people and rails.
const rightsToBind = `
merchant-bookkeeper: get list watch apikeys.merchant-operator.io
merchant-bookkeeper: get list refundpayments viewpayments watch merchants.merchant-operator.io
merchant-integrator: editallowlist editwebhook get issuekeys list rotatekeys viewpayments watch merchants.merchant-operator.io
merchant-integrator: get list watch apikeys.merchant-operator.io
merchant-viewer: get list watch apikeys.merchant-operator.io
merchant-viewer: get list watch merchants.merchant-operator.io
rail: get /internal/v1/refunds
rail: get post /internal/v1/sessions/*
`

func TestRights_RolesToBind(t *testing.T) {
	all := objects(t, render(t).stream())
	verbs := map[string]map[string]bool{}
	for _, name := range []string{"merchant-viewer", "merchant-bookkeeper", "merchant-integrator", "rail"} {
		note(verbs, name, get[rbacv1.ClusterRole](t, all, "ClusterRole/merchant-operator-"+name).Rules)
	}
	if diff := cmp.Diff(lines(rightsToBind), formatRights(verbs)); diff != "" {
		t.Errorf("rights (-written down +of the roles):\n%s", diff)
	}
}

// The dispatcher may update the ConfigMaps in which it publishes the last uses of keys, all of them and no others.
func TestRights_LastUses(t *testing.T) {
	var want, got []string
	for shard := range published.LastUseShards {
		want = append(want, published.LastUseName(shard))
	}
	for _, rule := range get[rbacv1.Role](t, objects(t, render(t).stream()), "Role/merchant-operator-dispatcher@"+credentials).Rules {
		if slices.Contains(rule.Verbs, "update") {
			got = append(got, rule.ResourceNames...)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ConfigMaps (-published +may be updated):\n%s", diff)
	}
}

// What is everywhere without watchNamespaces is in each of them with it. TokenReview, SubjectAccessReview and URLs belong to no
// namespace.
func TestRights_SomeNamespaces(t *testing.T) {
	var want []string
	for _, line := range lines(rights) {
		clusterWide := strings.Contains(line, "auth-delegator") || strings.Contains(line, "subjectaccessreviews") || strings.Contains(line, " /")
		if !strings.Contains(line, "everywhere") || clusterWide {
			want = append(want, line)
			continue
		}
		want = append(want, strings.Replace(line, "everywhere", "in more-shops", 1), strings.Replace(line, "everywhere", "in shops", 1))
	}
	got := grants(t, render(t, withConsole, "watchNamespaces: [shops, more-shops]").stream())
	if diff := cmp.Diff(lines(strings.Join(want, "\n")), got); diff != "" {
		t.Errorf("rights (-want +granted):\n%s", diff)
	}
}

// The same, but with the release's own namespace among them: its Roles must not be in each other's way.
func TestRights_ReleaseNamespace(t *testing.T) {
	want := "merchant-operator in " + system + ": create delete get list update watch secrets"
	if got := grants(t, render(t, "watchNamespaces: ["+system+"]").stream()); !slices.Contains(got, want) {
		t.Errorf("%q is not granted:\n%s", want, strings.Join(got, "\n"))
	}
}

// The API server itself is asked, after it has been given the chart's objects.
func TestRights_SomeNamespacesEnforced(t *testing.T) {
	install(t, "watchNamespaces: [shops]")
	for _, test := range []struct {
		user, verb, group, resource, namespace string
		want                                   bool
	}{
		{account("merchant-operator"), "create", "", "secrets", "shops", true},
		{account("merchant-operator"), "list", "merchant-operator.io", "merchants", "shops", true},
		{account("merchant-operator"), "create", "", "secrets", "more-shops", false},
		{account("merchant-operator"), "list", "merchant-operator.io", "merchants", "more-shops", false},
		{account("merchant-operator"), "list", "", "secrets", "", false},
		{account("merchant-operator"), "get", "", "secrets", system, false},
		{account("merchant-operator"), "update", "", "secrets", credentials, true},
		{account("merchant-operator-apiserver"), "update", "", "secrets", credentials, true},
		{account("merchant-operator-apiserver"), "create", "", "secrets", credentials, false},
		{account("merchant-operator-apiserver"), "get", "", "secrets", "shops", false},
		{account("merchant-operator-apiserver"), "create", "authentication.k8s.io", "tokenreviews", "", true},
		{account("merchant-operator-dispatcher"), "watch", "", "secrets", credentials, true},
		{account("merchant-operator-dispatcher"), "update", "", "secrets", credentials, false},
		{account("merchant-operator-dispatcher"), "patch", "events.k8s.io", "events", "shops", true},
		{account("merchant-operator-dispatcher"), "patch", "events.k8s.io", "events", "more-shops", false},
		{"system:serviceaccount:" + system + ":default", "get", "", "secrets", credentials, false},
	} {
		spec := authorizationv1.SubjectAccessReviewSpec{User: test.user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: test.namespace, Verb: test.verb, Group: test.group, Resource: test.resource,
		}}
		if got := allowed(t, spec); got != test.want {
			t.Errorf("%s may %s %s.%s in %q: %t, want %t", test.user, test.verb, test.resource, test.group, test.namespace, got, test.want)
		}
	}
}

// install applies the least of the chart with these values until the test ends.
func install(t *testing.T, values ...string) {
	t.Helper()
	text := render(t, append([]string{least}, values...)...).stream()
	kubectl(t, text, "apply", "-f", "-")
	t.Cleanup(func() { kubectl(t, text, "delete", "--ignore-not-found", "-f", "-") })
}

// account is the user name of a service account of the release.
func account(name string) string { return "system:serviceaccount:" + system + ":" + name }

// A rail settles, the console rotates keys and reads signing secrets, and nobody may post to any other path. The names in the console's
// paths are literal.
func TestRights_PathsEnforced(t *testing.T) {
	install(t, withConsole, "rails: [{namespace: rails, serviceAccountName: card}]")
	const (
		settlement = "/internal/v1/sessions/ps_aaaaaaaaaaaaghijklmnopqrstuvwx/settlement"
		rotation   = "/internal/v1/keys/{keyID}/rotate"
		signing    = "/internal/v1/merchants/{merchantID}/signing-secret"
	)
	for user, want := range map[string][]string{
		"system:serviceaccount:rails:card":      {settlement},
		account("merchant-operator-console"):    {rotation, signing},
		"system:serviceaccount:rails:default":   nil,
		account("default"):                      nil,
		account("merchant-operator"):            nil,
		account("merchant-operator-apiserver"):  nil,
		account("merchant-operator-dispatcher"): nil,
	} {
		var got []string
		for _, path := range []string{
			settlement, rotation, signing, "/internal/v1/sessions", "/internal/v1/other", "/internal/v1/keys", "/internal/v1/keys/abcdefgh2345/rotate",
			"/internal/v1/merchants", "/internal/v1/merchants/abcdefgh2345/signing-secret", "/metrics", "/",
		} {
			post := &authorizationv1.NonResourceAttributes{Verb: "post", Path: path}
			if allowed(t, authorizationv1.SubjectAccessReviewSpec{User: user, NonResourceAttributes: post}) {
				got = append(got, path)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s may post (-want +got):\n%s", user, diff)
		}
	}
}

// The roles for people are bound to groups of the OpenID provider, in a namespace.
func TestRights_PeopleEnforced(t *testing.T) {
	install(t)
	for _, role := range []string{"viewer", "bookkeeper", "integrator"} {
		kubectl(t, "", "create", "rolebinding", role+"s", "-n", "shops", "--clusterrole=merchant-operator-merchant-"+role, "--group=oidc:"+role+"s")
		t.Cleanup(func() { kubectl(t, "", "delete", "rolebinding", role+"s", "-n", "shops") })
	}
	const see, act, write = "get list watch", "issuekeys rotatekeys editallowlist editwebhook", "create update patch delete deletecollection"
	for group, want := range map[string]struct{ payments, refunds, acts bool }{
		"oidc:viewers": {}, "oidc:bookkeepers": {payments: true, refunds: true}, "oidc:integrators": {payments: true, acts: true},
	} {
		may := func(verbs, resource, namespace string, want bool) {
			t.Helper()
			for verb := range strings.FieldsSeq(verbs) {
				got := allowed(t, authorizationv1.SubjectAccessReviewSpec{User: "oidc:ann", Groups: []string{group}, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: "merchant-operator.io", Resource: resource, Name: "acme-coffee",
				}})
				if got != want {
					t.Errorf("%s may %s %s in %s: %t, want %t", group, verb, resource, namespace, got, want)
				}
			}
		}
		may(see, "merchants", "shops", true)
		may(see, "apikeys", "shops", true)
		may("viewpayments", "merchants", "shops", want.payments)
		may("refundpayments", "merchants", "shops", want.refunds)
		may(act, "merchants", "shops", want.acts)
		may(write, "merchants", "shops", false)
		may(write, "apikeys", "shops", false)
		may(see+" viewpayments refundpayments "+act, "merchants", "more-shops", false)
	}
}

// allowed asks the API server. Without groups the user is a service account.
func allowed(t *testing.T, spec authorizationv1.SubjectAccessReviewSpec) bool {
	t.Helper()
	if spec.Groups == nil {
		spec.Groups = []string{"system:serviceaccounts", "system:authenticated"}
	}
	review := &authorizationv1.SubjectAccessReview{Spec: spec}
	if err := cluster.Client.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// grants are the rights that manifests give to the programs' accounts, one line for each account, place and
// resource, in order. What rails get is their own.
func grants(t *testing.T, text string) []string {
	t.Helper()
	all := objects(t, text)
	verbs := map[string]map[string]bool{}
	for key := range all {
		var granted []rbacv1.PolicyRule
		var subjects []rbacv1.Subject
		place := "everywhere"
		switch {
		case strings.HasPrefix(key, "RoleBinding/"):
			binding := get[rbacv1.RoleBinding](t, all, key)
			place = "in " + binding.Namespace
			granted, subjects = findRules(t, all, binding.RoleRef, binding.Namespace), binding.Subjects
		case strings.HasPrefix(key, "ClusterRoleBinding/"):
			binding := get[rbacv1.ClusterRoleBinding](t, all, key)
			granted, subjects = findRules(t, all, binding.RoleRef, ""), binding.Subjects
		}
		for _, subject := range subjects {
			if subject.Namespace != system || subject.Kind != rbacv1.ServiceAccountKind {
				t.Errorf("%s is for %v", key, subject)
			}
			note(verbs, subject.Name+" "+place, granted)
		}
	}
	return formatRights(verbs)
}

// formatRights returns a line for each account, place and resource, in order.
func formatRights(verbs map[string]map[string]bool) (out []string) {
	for what, each := range verbs {
		account, resource, _ := strings.Cut(what, ": ")
		out = append(out, account+": "+strings.Join(slices.Sorted(maps.Keys(each)), " ")+" "+resource)
	}
	slices.Sort(out)
	return out
}

func note(verbs map[string]map[string]bool, who string, granted []rbacv1.PolicyRule) {
	for _, rule := range granted {
		all := slices.Clone(rule.NonResourceURLs)
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				what := strings.TrimSuffix(resource+"."+group, ".")
				if len(rule.ResourceNames) > 0 {
					what += " " + strings.Join(rule.ResourceNames, " ")
				}
				all = append(all, what)
			}
		}
		for _, what := range all {
			what = who + ": " + what
			if verbs[what] == nil {
				verbs[what] = map[string]bool{}
			}
			for _, verb := range rule.Verbs {
				verbs[what][verb] = true
			}
		}
	}
}

// findRules finds the rules of a role. One that Kubernetes itself has is shown by its name.
func findRules(t *testing.T, all map[string]*unstructured.Unstructured, role rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	t.Helper()
	switch {
	case role.Kind == "ClusterRole" && strings.HasPrefix(role.Name, "system:"):
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{role.Name}, Verbs: []string{"all of"}}}
	case role.Kind == "ClusterRole":
		return get[rbacv1.ClusterRole](t, all, "ClusterRole/"+role.Name).Rules
	case namespace == system:
		return get[rbacv1.Role](t, all, "Role/"+role.Name).Rules
	default:
		return get[rbacv1.Role](t, all, "Role/"+role.Name+"@"+namespace).Rules
	}
}

func lines(text string) []string {
	out := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(out)
	return out
}
