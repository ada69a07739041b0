package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/keys"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

const anywhere = "203.0.113.7"

// tenant is a namespace with merchants and keys.
type tenant struct{ fixture.Tenant }

// wantOverlap compares spec.rotation.overlapSeconds of an ApiKey.
func (n tenant) wantOverlap(t *testing.T, name string, want *int32) {
	t.Helper()
	key := &v1alpha1.ApiKey{}
	if err := n.Kube.Get(t.Context(), client.ObjectKey{Namespace: n.Namespace, Name: name}, key); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, key.Spec.Rotation.OverlapSeconds); diff != "" {
		t.Errorf("overlapSeconds (-want +got):\n%s", diff)
	}
}

func newTenant(t *testing.T) tenant {
	t.Helper()
	return tenant{fixture.NewTenant(t, installation.Client)}
}

// secret creates a Secret of somebody else.
func (n tenant) secret(name string) {
	n.T.Helper()
	if err := installation.Client.Create(n.T.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: name}}); err != nil {
		n.T.Fatal(err)
	}
}

func (n tenant) apiKey(name string) v1alpha1.ApiKey {
	n.T.Helper()
	var key v1alpha1.ApiKey
	if err := installation.Client.Get(n.T.Context(), client.ObjectKey{Namespace: n.Namespace, Name: name}, &key); err != nil {
		n.T.Fatal(err)
	}
	return key
}

// eventuallyMe waits until the real API answers so: its watch is asynchronous.
func eventuallyMe(t *testing.T, n tenant, key string, want int) {
	t.Helper()
	n.Eventually("the API answers as expected", func() bool { return me(t, key, anywhere) == want })
}

func TestOnboard(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	got := runAs(t, admin, n.Namespace, "", "onboard", "blue-bakery", "--display-name", "Blue Bakery", "--allow", "203.0.113.0/24,2001:db8::1", "--webhook", "https://shop.example/hooks").
		want(t, terminal.ExitDone, "keys reveal blue-bakery-1", "blue-bakery-webhook", "day begins at midnight UTC")
	if want := "merchant.merchant-operator.io/blue-bakery created\napikey.merchant-operator.io/blue-bakery-1 created\n"; got.out != want {
		t.Errorf("stdout %q, want %q", got.out, want)
	}
	key := strings.TrimSpace(run(t, n.Namespace, "keys reveal blue-bakery-1").want(t, terminal.ExitDone).out)
	if strings.Contains(got.out+got.problems, key) {
		t.Error("the key is printed, and nobody asked for it")
	}
	eventuallyMe(t, n, key, http.StatusOK)

	again := runAs(t, admin, n.Namespace, "", "onboard", "blue-bakery", "--display-name", "Blue Bakery", "--allow", "2001:db8::1", "--allow", "203.0.113.0/24", "--webhook", "https://shop.example/hooks", "--reveal").
		want(t, terminal.ExitDone, "blue-bakery unchanged")
	if again.out != key+"\n" {
		t.Error("--reveal prints something else than the key to stdout")
	}
	runAs(t, admin, n.Namespace, "", "onboard", "blue-bakery", "--display-name", "Blue Bakery").
		want(t, terminal.ExitError, "with another ipAllowlist, webhook")
	runAs(t, admin, n.Namespace, "", "onboard", "blue-bakery", "--display-name", "Blue Bakery", "--allow", "2001:db8::1,203.0.113.0/24", "--webhook", "https://shop.example/hooks", "--permissions", "all").
		want(t, terminal.ExitError, "with another permissions (create,read,cancel)")
	// A mistake leaves nothing half done.
	run(t, n.Namespace, "onboard red-bakery --display-name Red --key blue-bakery-1 --timeout 0s").want(t, terminal.ExitError, "already exists with another merchantRef or delivery")
	runAs(t, admin, n.Namespace, "", "onboard", "red-bakery", "--display-name", "Red", "--secret-name", "blue-bakery-webhook").want(t, terminal.ExitError, "Secret "+n.Namespace+"/blue-bakery-webhook already exists", "--secret-name")
	run(t, n.Namespace, "status red-bakery").want(t, terminal.ExitError, "there is no Merchant red-bakery")
}

// The schedule that a platform's admission policy demands of live keys can be given with the first key and with further ones. A second run with it
// continues, one with another is refused.
func TestOnboard_Schedule(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	const onboard = "onboard tea-house --display-name Tea --timeout 0s --rotate-every "
	run(t, n.Namespace, onboard+"2160h --expires-at 2100-01-01T00:00:00Z")
	run(t, n.Namespace, "keys issue tea-house-2 --merchant tea-house --timeout 0s --rotate-every 2160h")
	for name, expires := range map[string]bool{"tea-house-1": true, "tea-house-2": false} {
		spec := n.apiKey(name).Spec
		if every := spec.Rotation.EverySeconds; every == nil || *every != 7776000 || (spec.ExpiresAt != nil) != expires {
			t.Errorf("%s: %+v", name, spec)
		}
	}
	run(t, n.Namespace, onboard+"2160h --expires-at 2100-01-01T00:00:00Z").want(t, terminal.ExitDone, "tea-house-1 unchanged")
	run(t, n.Namespace, onboard+"48h").want(t, terminal.ExitError, "already exists with another rotation.everySeconds or expiresAt")
}

// With the policies of docs/examples in force, a refusal names the flag that is missing, and with the flags the keys are made. A leaked key of before can
// be rotated.
func TestOnboard_Policies(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("old")
	run(t, n.Namespace, "keys issue old-till --merchant old").want(t, terminal.ExitDone)
	n.ExamplePolicies()
	const onboard, allow, schedule = "onboard tea-house --display-name Tea", " --allow 203.0.113.0/24", " --rotate-every 2160h"
	run(t, n.Namespace, onboard+schedule).want(t, terminal.ExitError, "kubectl merchant: --allow")
	run(t, n.Namespace, onboard+allow).want(t, terminal.ExitError, "/tea-house-1: a rule of the platform refuses it: spec.rotation.everySeconds: ", "kubectl merchant: --rotate-every 2160h")
	run(t, n.Namespace, "status tea-house").want(t, terminal.ExitError, "there is no Merchant tea-house")
	run(t, n.Namespace, onboard+allow+schedule).want(t, terminal.ExitDone, "tea-house-1 created")
	run(t, n.Namespace, "keys issue tea-house-2 --merchant tea-house").want(t, terminal.ExitError, "--rotate-every 2160h")
	run(t, n.Namespace, "keys issue tea-house-2 --merchant tea-house"+schedule).want(t, terminal.ExitDone)
	run(t, n.Namespace, "keys issue tea-house-3 --merchant tea-house --mode Test").want(t, terminal.ExitDone)
	run(t, n.Namespace, "keys rotate tea-house-1 --overlap 0s").want(t, terminal.ExitDone, "rotated")
	run(t, n.Namespace, "keys rotate old-till --overlap 0s").want(t, terminal.ExitDone, "rotated")
	run(t, n.Namespace, "keys disable old-till").want(t, terminal.ExitDone, "disabled")
}

// What a dry run prints is a manifest for Git: kubectl accepts it, and it makes the same objects.
func TestOnboard_DryRun(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	got := runAs(t, admin, n.Namespace, "", "onboard", "tea-house", "--display-name", "Tea House", "--currency", "EUR", "--time-zone", "Europe/Berlin", "--dry-run=server", "-o", "yaml").want(t, terminal.ExitDone)
	if want := `apiVersion: merchant-operator.io/v1alpha1
kind: Merchant
metadata:
  name: tea-house
  namespace: ` + n.Namespace + `
spec:
  currency: EUR
  displayName: Tea House
  timeZone: Europe/Berlin
---
apiVersion: merchant-operator.io/v1alpha1
kind: ApiKey
metadata:
  name: tea-house-1
  namespace: ` + n.Namespace + `
spec:
  merchantRef:
    name: tea-house
  permissions:
  - create
  - read
  - cancel
`; got.out != want {
		t.Errorf("the manifest is\n%s", got.out)
	}
	run(t, n.Namespace, "status tea-house").want(t, terminal.ExitError, "there is no Merchant tea-house")
	if _, err := installation.Kubectl(got.out, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	runAs(t, admin, n.Namespace, "", "onboard", "tea-house", "--display-name", "Tea House", "--currency", "EUR", "--time-zone", "Europe/Berlin").want(t, terminal.ExitDone, "tea-house unchanged").wantNo(t, "midnight")
	runAs(t, admin, n.Namespace, "", "onboard", "tea-house", "--display-name", "Tea House", "--currency", "EUR").want(t, terminal.ExitError, "with another timeZone")
	run(t, n.Namespace, "status tea-house").want(t, terminal.ExitDone, "Europe/Berlin", "EUR")
	run(t, n.Namespace, "onboard other --display-name Other --time-zone Mars --dry-run=server").want(t, terminal.ExitError, "timeZone")
	// The rules are those of the API server.
	run(t, n.Namespace, "onboard other --display-name Other --currency XXX --dry-run=server").want(t, terminal.ExitError, "ISO 4217")
	run(t, n.Namespace, "onboard other --display-name Other --dry-run=server").want(t, terminal.ExitDone, "merchant.merchant-operator.io/other created (server dry run)")
}

// A new key may do what a till needs, unless somebody says more.
func TestIssue_Permissions(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	for name, test := range map[string]struct {
		flags string
		want  []v1alpha1.Permission
	}{
		"till":   {"", v1alpha1.TillPermissions()},
		"office": {" --permissions list,read,list", []v1alpha1.Permission{"list", "read"}},
		"server": {" --permissions all", nil},
	} {
		run(t, n.Namespace, "keys issue "+name+" --merchant acme --timeout 0s"+test.flags).want(t, terminal.ExitDone)
		key := n.apiKey(name)
		if diff := cmp.Diff(test.want, key.Spec.Permissions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, wrong := range []string{"payout", "read,", "Read", "read,all"} {
		run(t, n.Namespace, "keys issue x --merchant acme --permissions "+wrong).want(t, terminal.ExitUsage, "is not one of create,read,list,cancel,rotate,refund, all")
	}
}

// Keys are issued, rotated and disabled.
func TestKeys(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	first := run(t, n.Namespace, "keys issue till --merchant acme --reveal").want(t, terminal.ExitDone)
	old := strings.TrimSpace(first.out)
	eventuallyMe(t, n, old, http.StatusOK)
	run(t, n.Namespace, "keys issue till --merchant acme").want(t, terminal.ExitError, "ApiKey "+n.Namespace+"/till already exists")

	rotated := run(t, n.Namespace, "keys rotate till --overlap 1h --reveal").want(t, terminal.ExitDone)
	fresh := strings.TrimSpace(rotated.out)
	if fresh == old || strings.Contains(rotated.problems, fresh) {
		t.Error("no new key, or also on stderr")
	}
	eventuallyMe(t, n, fresh, http.StatusOK)
	eventuallyMe(t, n, old, http.StatusOK)
	run(t, n.Namespace, "status acme").want(t, terminal.ExitDone, "an old key still works for 5")

	day, none := new(int32(86400)), new(int32(0))
	n.wantOverlap(t, "till", day)
	run(t, n.Namespace, "keys rotate till --overlap 0s --trigger leak").want(t, terminal.ExitDone, "rotated")
	n.wantOverlap(t, "till", day)
	eventuallyMe(t, n, fresh, http.StatusUnauthorized)
	run(t, n.Namespace, "keys rotate till --trigger leak").want(t, terminal.ExitUsage, `--trigger is already "leak"`)

	run(t, n.Namespace, "keys rotate till --overlap 0s --trigger unseen --timeout 0s").want(t, terminal.ExitDone, "The next rotation has the same overlap", `"overlapSeconds":86400`)
	n.wantOverlap(t, "till", none)
	run(t, n.Namespace, "keys rotate till --overlap 1h --trigger seen").want(t, terminal.ExitDone)
	n.wantOverlap(t, "till", none)
	last := strings.TrimSpace(run(t, n.Namespace, "keys reveal till").want(t, terminal.ExitDone).out)
	eventuallyMe(t, n, last, http.StatusOK)
	run(t, n.Namespace, "keys disable till").want(t, terminal.ExitDone, "apikey.merchant-operator.io/till disabled")
	eventuallyMe(t, n, last, http.StatusUnauthorized)
	run(t, n.Namespace, "status acme").want(t, terminal.ExitNegative, "Disabled", "keys enable ")
	run(t, n.Namespace, "keys enable till").want(t, terminal.ExitDone, "enabled")
	eventuallyMe(t, n, last, http.StatusOK)

	// The owner of what changed is the plugin, so that a reviewer of an audit finds it.
	var key v1alpha1.ApiKey
	if err := installation.Client.Get(t.Context(), client.ObjectKey{Namespace: n.Namespace, Name: "till"}, &key); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(key.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == cluster.FieldOwner }) {
		t.Errorf("managed by %+v", key.ManagedFields)
	}
}

// A full disk is an error, also where the answer is no: nobody has read it.
func TestOutput_FullDisk(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	n.ApiKey("till", "acme")
	n.Merchant("tea")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	for _, words := range []string{"version", "--help", "status", "status tea", "status tea -o name", "keys reveal till", "keys rotate till --trigger disk --overlap 0s --reveal"} {
		var problems strings.Builder
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: full, ErrOut: &problems}
		args := append(strings.Fields(words), "--kubeconfig="+admin, "-n="+n.Namespace)
		if code := execute(t.Context(), streams, args); code != terminal.ExitError || !strings.Contains(problems.String(), "no space left on device") {
			t.Errorf("%s on a full disk: exit code %d, %s", words, code, problems.String())
		}
	}
}

// A key that its trigger does not rotate is refused.
func TestRotate_TriggerRotatesNothing(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	n.Unissued("console", "acme")
	run(t, n.Namespace, "keys rotate console").want(t, terminal.ExitError, "delivery.policy None", "console")
	run(t, n.Namespace, "keys reveal console").want(t, terminal.ExitError, "shown once")

	external := keys.New("external", "acme", "", keys.DefaultOverlap)
	external.Namespace, external.Spec.KeyDigest = n.Namespace, strings.Repeat("ab", 32)
	git := keys.New("git", "acme", "", keys.DefaultOverlap)
	git.Namespace, git.Labels = n.Namespace, map[string]string{"kustomize.toolkit.fluxcd.io/name": "shops", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	for _, key := range []*v1alpha1.ApiKey{external, git} {
		if err := installation.Client.Create(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	run(t, n.Namespace, "keys rotate external").want(t, terminal.ExitError, "externally generated")
	run(t, n.Namespace, "keys reveal external").want(t, terminal.ExitError, "only its SHA-256")
	run(t, n.Namespace, "keys rotate git --trigger two").want(t, terminal.ExitError, "managed by Flux (Kustomization flux-system/shops)", `to "two"`)
	run(t, n.Namespace, "keys disable git").want(t, terminal.ExitError, "Change spec.state to Disabled in Git", "--force")
	run(t, n.Namespace, "keys disable git --force").want(t, terminal.ExitDone, "Warning: ", "managed by Flux (Kustomization flux-system/shops)", "in Git too", "disabled")
	run(t, n.Namespace, "keys enable git").want(t, terminal.ExitError, "Change spec.state to Active in Git.")
	run(t, n.Namespace, "keys enable git --force").want(t, terminal.ExitUsage, "unknown flag")

	// The next sync of Flux takes away what a manager called kubectl and something owns.
	if err := installation.Client.Get(t.Context(), client.ObjectKeyFromObject(git), git); err != nil {
		t.Fatal(err)
	}
	for _, entry := range git.ManagedFields {
		if strings.HasPrefix(entry.Manager, "kubectl") && strings.Contains(entry.FieldsV1.GetRawString(), `"f:state"`) {
			t.Errorf("Flux undoes what %s owns: the key would work again", entry.Manager)
		}
	}
}

// Without a Secret, reveal prints what to do.
func TestReveal_NoSecret(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	key, plaintext := n.ApiKey("till", "acme")
	eventuallyMe(t, n, plaintext, http.StatusOK)
	answer, err := fixture.Call(fixture.Insecure, replica.Public, "POST", fixture.Rotate, plaintext, "")
	if err != nil || answer.Status != http.StatusOK {
		t.Fatalf("%d, %v", answer.Status, err)
	}
	n.Eventually("the Secret is gone", func() bool {
		return strings.Contains(run(t, n.Namespace, "keys reveal "+key.Name).problems, "rotated over HTTP, so only the caller has it")
	})
	run(t, n.Namespace, "keys reveal nobody").want(t, terminal.ExitError, "there is no ApiKey nobody", "kubectl merchant status")
}

func TestIssue_Timeout(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	run(t, n.Namespace, "keys issue till --merchant acme --timeout 1ns").want(t, terminal.ExitNegative, "till is not ready after 1ns")
}

// What cannot work is not written.
func TestIssue_Checks(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	merchant := n.Merchant("acme-coffee")
	n.secret("taken")
	for desc, test := range map[string]struct {
		command string
		prints  []string
	}{
		"a mistyped Merchant": {"keys issue till --merchant acme-cofee", []string{"there is no Merchant acme-cofee", "Do you mean acme-coffee?"}},
		"another Merchant":    {"keys issue till --merchant nobody", []string{"there is no Merchant nobody", "List them with: kubectl merchant status"}},
		"a taken Secret":      {"keys issue till --merchant acme-coffee --secret-name taken", []string{"taken already exists", "--secret-name"}},
	} {
		got := run(t, n.Namespace, test.command).want(t, terminal.ExitError, test.prints...)
		if strings.Contains(got.problems, "waiting") {
			t.Errorf("%s: it waits: %s", desc, got.problems)
		}
	}
	n.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantClosed })
	run(t, n.Namespace, "keys issue till --merchant acme-coffee").want(t, terminal.ExitError, "is Closed")
	run(t, n.Namespace, "keys reveal till").want(t, terminal.ExitError, "there is no ApiKey till")
}

// Without the right to see the Secret, the operator finds out, and nobody waits for a person.
func TestKeys_SecretConflict(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	n.secret("till-key")
	name := n.Namespace + "-manager"
	kubeconfig := user(t, name)
	grant(t, name, n.Namespace, documented(t)["merchant-manager"]...)
	issued := runAs(t, kubeconfig, n.Namespace, "", "keys", "issue", "till", "--merchant", "acme", "--timeout", fixture.Patience.String()).
		want(t, terminal.ExitNegative, "till is not ready: SecretConflict", "choose another spec.delivery.secretName")
	if strings.Contains(issued.problems, "after "+fixture.Patience.String()) {
		t.Errorf("it waited for a person: %s", issued.problems)
	}
	for _, command := range []string{"keys reveal till", "keys rotate till"} {
		got := run(t, n.Namespace, command).want(t, terminal.ExitError, "SecretConflict", "Change that first", "kubectl merchant status acme")
		if strings.Contains(got.problems, "keys rotate") {
			t.Errorf("%s advises a rotation: %s", command, got.problems)
		}
	}
	if trigger := n.apiKey("till").Spec.Rotation.Trigger; trigger != "" {
		t.Errorf("the trigger is %q now", trigger)
	}
}

func TestKeys_MerchantNotFound(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	merchant := n.Merchant("acme")
	n.ApiKey("till", "acme")
	n.Change(merchant, func() { merchant.Finalizers = append(merchant.Finalizers, "shops.example/wait") })
	n.Delete(merchant)
	run(t, n.Namespace, "keys rotate till").want(t, terminal.ExitError, "Merchant acme is being deleted")
	run(t, n.Namespace, "keys issue kiosk --merchant acme").want(t, terminal.ExitError, "Merchant acme is being deleted")
	n.Change(merchant, func() {
		merchant.Finalizers = slices.DeleteFunc(merchant.Finalizers, func(name string) bool { return name == "shops.example/wait" })
	})
	n.Eventually("the Merchant is gone", func() bool { return n.Gone(merchant) })
	run(t, n.Namespace, "keys enable till").want(t, terminal.ExitError, "there is no Merchant acme")
	n.Eventually("who reads the dead key is warned", func() bool {
		return strings.Contains(run(t, n.Namespace, "keys reveal till").want(t, terminal.ExitDone).problems, "This key is refused now: MerchantNotFound")
	})
	run(t, n.Namespace, "keys rotate till").want(t, terminal.ExitError, "MerchantNotFound", "Issue another key")
	run(t, n.Namespace, "keys disable till").want(t, terminal.ExitDone, "disabled") // it only restricts
	if trigger := n.apiKey("till").Spec.Rotation.Trigger; trigger != "" {
		t.Errorf("the trigger is %q now", trigger)
	}
}

// A status that changes meanwhile, here because the key is used, is no conflict.
func TestRotate_StatusChanges(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	n.ApiKey("till", "acme")
	key := n.apiKey("till")
	stale := key.DeepCopy()
	n.Change(&key, func() { key.Labels = map[string]string{"shops.example/counter": "1"} })
	kube := &cluster.Cluster{Client: installation.Client, Namespace: n.Namespace}
	if err := kube.ChangeKey(t.Context(), stale, func() { stale.Spec.Rotation.Trigger = "first" }); err != nil {
		t.Fatal(err)
	}
	if err := kube.ChangeKey(t.Context(), &key, func() { key.Spec.Rotation.Trigger = "second" }); !apierrors.IsConflict(err) {
		t.Errorf("two rotations became one: %v", err)
	}
	if trigger := n.apiKey("till").Spec.Rotation.Trigger; trigger != "first" {
		t.Errorf("the trigger is %q", trigger)
	}
}

// The new key is delivered, and does not work before the merchant is active again.
func TestRotate_MerchantSuspended(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	merchant := n.Merchant("acme")
	key, _ := n.ApiKey("till", "acme")
	n.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantSuspended })
	n.Eventually("the suspension is in force", func() bool {
		usable := meta.FindStatusCondition(n.apiKey("till").Status.Conditions, v1alpha1.UsableCondition)
		return usable != nil && usable.Reason == v1alpha1.ReasonMerchantSuspended
	})
	run(t, n.Namespace, "keys rotate till").want(t, terminal.ExitNegative, "till is not ready: MerchantSuspended", "until spec.state of the Merchant is Active")
	if rotated := n.apiKey("till"); rotated.Status.KeyGeneration != key.Status.KeyGeneration+1 {
		t.Errorf("generation %d after %d", rotated.Status.KeyGeneration, key.Status.KeyGeneration)
	}
}

func TestKeys_Output(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	n.Merchant("acme")
	if got := run(t, n.Namespace, "keys issue till --merchant acme -o name").want(t, terminal.ExitDone); got.out != "apikey.merchant-operator.io/till\n" {
		t.Errorf("-o name: %q", got.out)
	}
	var key v1alpha1.ApiKey
	if err := json.Unmarshal([]byte(run(t, n.Namespace, "keys disable till -o json").want(t, terminal.ExitDone).out), &key); err != nil || key.Spec.State != v1alpha1.ApiKeyDisabled {
		t.Errorf("-o json: %+v, %v", key, err)
	}
}
