package cli

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// advised is a command line of the plugin in a sentence.
var advised = regexp.MustCompile(`kubectl merchant ([a-z0-9-]+(?: [A-Za-z0-9_./,=-]+)*)`)

// commandsIn returns the command lines in a text.
func commandsIn(text string) (commands []string) {
	for _, found := range advised.FindAllStringSubmatch(text, -1) {
		commands = append(commands, strings.TrimRight(found[1], ".,"))
	}
	return commands
}

// issue makes an ApiKey, and returns its first key.
func issue(t *testing.T, n tenant, name, merchant string) string {
	t.Helper()
	return strings.TrimSpace(run(t, n.Namespace, "keys issue "+name+" --merchant "+merchant+" --reveal").want(t, terminal.ExitDone).out)
}

// refusedKey returns what explain-401 prints when it knows that the key is refused.
func refusedKey(t *testing.T, n tenant, key string) (text string) {
	t.Helper()
	n.Eventually("the key is refused", func() bool {
		got := runAs(t, admin, n.Namespace, key, "explain-401", "--key-stdin", "--from", anywhere)
		text = got.out
		return got.code == terminal.ExitNegative
	})
	return text
}

// loseSecret deletes the Secret of a key, and waits until the operator says so.
func loseSecret(n tenant, name string) {
	n.T.Helper()
	n.Delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: name + "-key"}})
	n.Eventually("the Secret is known to be gone", func() bool {
		key := n.apiKey(name)
		return meta.IsStatusConditionFalse(key.Status.Conditions, v1alpha1.DeliveredCondition)
	})
}

// rotateOverHTTP makes an ApiKey, rotates its key as the owner, and waits until the Secret is gone.
func rotateOverHTTP(t *testing.T, n tenant, name, merchant string) {
	t.Helper()
	_, plaintext := n.ApiKey(name, merchant)
	eventuallyMe(t, n, plaintext, http.StatusOK)
	answer, err := fixture.Call(fixture.Insecure, replica.Public, http.MethodPost, fixture.Rotate, plaintext, "")
	if err != nil || answer.Status != http.StatusOK {
		t.Fatalf("%d, %v", answer.Status, err)
	}
	n.Eventually("the Secret is gone", func() bool {
		return n.Gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: name + "-key"}})
	})
}

func inGit(key *v1alpha1.ApiKey) {
	key.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "shops", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
}

// Each command that the plugin advises is run in the situation in which it is advised, and does what it is for.
func TestAdvice_Runs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		situation func(t *testing.T, n tenant) (text string)
		// commands are those that the text advises; NS stands for the namespace.
		commands []string
	}{
		"explain-401, replaced": {func(t *testing.T, n tenant) string {
			t.Helper()
			old := issue(t, n, "till", "acme")
			run(t, n.Namespace, "keys rotate till --overlap 0s")
			return refusedKey(t, n, old)
		}, []string{"keys reveal till -n NS"}},
		"explain-401, replaced, and the Secret is lost": {func(t *testing.T, n tenant) string {
			t.Helper()
			old := issue(t, n, "till", "acme")
			run(t, n.Namespace, "keys rotate till --overlap 0s")
			loseSecret(n, "till")
			return refusedKey(t, n, old)
		}, []string{"keys rotate till -n NS"}},
		"explain-401, replaced in Git, and the Secret is lost": {func(t *testing.T, n tenant) string {
			t.Helper()
			till, old := n.ApiKey("till", "acme", inGit, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.OverlapSeconds = new(int32(0)) })
			n.Change(till, func() { till.Spec.Rotation.Trigger = "two" })
			n.AwaitReady(till)
			loseSecret(n, "till")
			return refusedKey(t, n, old)
		}, nil},
		"explain-401, disabled": {func(t *testing.T, n tenant) string {
			t.Helper()
			key := issue(t, n, "till", "acme")
			run(t, n.Namespace, "keys disable till")
			return refusedKey(t, n, key)
		}, []string{"keys enable till -n NS"}},
		"explain-401, disabled in Git": {func(t *testing.T, n tenant) string {
			t.Helper()
			till, key := n.ApiKey("till", "acme", inGit)
			n.Change(till, func() { till.Spec.State = v1alpha1.ApiKeyDisabled })
			return refusedKey(t, n, key)
		}, nil},
		"status, no key, and the first name is taken": {func(t *testing.T, n tenant) string {
			t.Helper()
			n.Merchant("tea")
			issue(t, n, "acme-1", "tea")
			return run(t, n.Namespace, "status acme").out
		}, []string{"keys issue acme-2 --merchant acme -n NS"}},
		"status, no key of a merchant with a long name": {func(t *testing.T, n tenant) string {
			t.Helper()
			long := strings.Repeat("a", 63)
			n.Merchant(long)
			return run(t, n.Namespace, "status "+long).out
		}, []string{"keys issue " + strings.Repeat("a", 61) + "-1 --merchant " + strings.Repeat("a", 63) + " -n NS"}},
		"status, no key of a closed merchant": {func(t *testing.T, n tenant) string {
			t.Helper()
			n.Merchant("shut", func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantClosed })
			return run(t, n.Namespace, "status shut").out
		}, nil},
		"status, every key disabled": {func(t *testing.T, n tenant) string {
			t.Helper()
			issue(t, n, "till", "acme")
			run(t, n.Namespace, "keys disable till")
			return run(t, n.Namespace, "status acme").out
		}, []string{"keys enable till -n NS"}},
		"status, every key disabled in Git": {func(t *testing.T, n tenant) string {
			t.Helper()
			till, _ := n.ApiKey("till", "acme", inGit)
			n.Change(till, func() { till.Spec.State = v1alpha1.ApiKeyDisabled })
			n.AwaitReady(till)
			return run(t, n.Namespace, "status acme").out
		}, nil},
		"status, a Secret is lost": {func(t *testing.T, n tenant) string {
			t.Helper()
			issue(t, n, "till", "acme")
			loseSecret(n, "till")
			return run(t, n.Namespace, "status acme").out
		}, []string{"keys rotate till -n NS"}},
		"reveal, a Secret is lost": {func(t *testing.T, n tenant) string {
			t.Helper()
			issue(t, n, "till", "acme")
			loseSecret(n, "till")
			return run(t, n.Namespace, "keys reveal till").problems
		}, []string{"keys rotate till -n NS"}},
		"reveal, rotated over HTTP": {func(t *testing.T, n tenant) string {
			t.Helper()
			rotateOverHTTP(t, n, "till", "acme")
			return run(t, n.Namespace, "keys reveal till").problems
		}, []string{"keys rotate till -n NS"}},
		"enable, rotated over HTTP": {func(t *testing.T, n tenant) string {
			t.Helper()
			rotateOverHTTP(t, n, "till", "acme")
			run(t, n.Namespace, "keys disable till")
			return run(t, n.Namespace, "keys enable till").problems
		}, nil},
		"issue": {func(t *testing.T, n tenant) string {
			t.Helper()
			return run(t, n.Namespace, "keys issue till --merchant acme").problems
		}, []string{"keys reveal till -n NS"}},
		"payments, no key may list, and the name is taken": {func(t *testing.T, n tenant) string {
			t.Helper()
			issue(t, n, "acme-office", "acme")
			return run(t, n.Namespace, "payments list acme").problems
		}, []string{"keys issue acme-office-2 --merchant acme --mode Live --permissions read,list -n NS"}},
		"payments, no key": {func(t *testing.T, n tenant) string {
			t.Helper()
			return run(t, n.Namespace, "payments list acme --mode Test").problems
		}, []string{"keys issue acme-office --merchant acme --mode Test --permissions read,list -n NS"}},
		"payments of a closed merchant": {func(t *testing.T, n tenant) string {
			t.Helper()
			n.Merchant("shut", func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantClosed })
			return run(t, n.Namespace, "payments list shut").problems
		}, nil},
		"a mistyped merchant": {func(t *testing.T, n tenant) string {
			t.Helper()
			return run(t, n.Namespace, "status acm").problems
		}, []string{"status -n NS"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTenant(t)
			n.Merchant("acme")
			text := test.situation(t, n)
			got := commandsIn(text)
			if want := strings.ReplaceAll(strings.Join(test.commands, "\n"), "NS", n.Namespace); strings.Join(got, "\n") != want {
				t.Fatalf("it advises\n%s\nwant\n%s\nin: %s", strings.Join(got, "\n"), want, text)
			}
			for _, line := range got {
				run(t, n.Namespace, line).want(t, terminal.ExitDone)
			}
		})
	}
}
