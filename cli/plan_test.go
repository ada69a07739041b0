package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/plan"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// git is a directory of manifests, and a GitOps tool that applies it as Flux does.
type git struct {
	tenant

	t   *testing.T
	dir string
}

func newGit(t *testing.T) git {
	t.Helper()
	return git{newTenant(t), t, t.TempDir()}
}

// commit writes the spec of an object; "-" removes it.
func (g git) commit(kind, name, spec string) {
	g.t.Helper()
	file := filepath.Join(g.dir, strings.ToLower(kind)+"-"+name+".yaml")
	if spec == "-" {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			g.t.Fatal(err)
		}
		return
	}
	labels := "{kustomize.toolkit.fluxcd.io/name: shops, kustomize.toolkit.fluxcd.io/namespace: " + g.Namespace + "}"
	text := fmt.Sprintf("apiVersion: merchant-operator.io/v1alpha1\nkind: %s\nmetadata: {name: %s, labels: %s}\nspec: %s\n", kind, name, labels, spec)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// sync applies the directory, deletes what is not in it, and waits for the operator. It returns what was refused.
func (g git) sync() (refused []error) {
	g.t.Helper()
	kept := map[string]bool{}
	for _, file := range must(filepath.Glob(filepath.Join(g.dir, "*.yaml")))(g.t) {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal(must(os.ReadFile(file))(g.t), &object.Object); err != nil {
			g.t.Fatal(err)
		}
		object.SetNamespace(g.Namespace)
		kept[object.GetKind()+"/"+object.GetName()] = true
		err := g.Kube.Apply(g.t.Context(), client.ApplyConfigurationFromUnstructured(&object), client.FieldOwner("kustomize-controller"), client.ForceOwnership)
		if err != nil {
			refused = append(refused, err)
		}
	}
	var merchants v1alpha1.MerchantList
	var keys v1alpha1.ApiKeyList
	if err := errors.Join(g.Kube.List(g.t.Context(), &merchants, client.InNamespace(g.Namespace)), g.Kube.List(g.t.Context(), &keys, client.InNamespace(g.Namespace))); err != nil {
		g.t.Fatal(err)
	}
	for i := range keys.Items {
		if !kept["ApiKey/"+keys.Items[i].Name] && keys.Items[i].Labels != nil {
			g.Delete(&keys.Items[i])
		}
	}
	for i := range merchants.Items {
		if !kept["Merchant/"+merchants.Items[i].Name] {
			g.Delete(&merchants.Items[i])
		}
	}
	g.Eventually("the operator has handled the sync", g.handled)
	return refused
}

// handled reports whether the operator has seen every object as it is.
func (g git) handled() bool {
	var merchants v1alpha1.MerchantList
	var keys v1alpha1.ApiKeyList
	if err := errors.Join(g.Kube.List(g.t.Context(), &merchants, client.InNamespace(g.Namespace)), g.Kube.List(g.t.Context(), &keys, client.InNamespace(g.Namespace))); err != nil {
		g.t.Fatal(err)
	}
	return !slices.ContainsFunc(merchants.Items, func(m v1alpha1.Merchant) bool {
		return m.Status.ObservedGeneration != m.Generation || m.DeletionTimestamp != nil
	}) && !slices.ContainsFunc(keys.Items, func(k v1alpha1.ApiKey) bool {
		return k.Status.ObservedGeneration != k.Generation || k.DeletionTimestamp != nil
	})
}

// must fails the test for an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// seen is what people notice of the ApiKey till.
type seen struct {
	// Answer is that of the API to the key of before.
	Answer int
	// Generation is that of the current key; 0: there is no ApiKey.
	Generation int64
	// OldKeys are those in overlap.
	OldKeys int
	// Secret is whether there is the delivered Secret of before.
	Secret bool
	// Webhook is whether there is the Secret with the signing secret.
	Webhook bool
}

func (g git) look(key string) seen {
	g.t.Helper()
	s := seen{Answer: me(g.t, key, anywhere), Secret: g.hasSecret("till-key"), Webhook: g.hasSecret("acme-webhook")}
	var till v1alpha1.ApiKey
	err := g.Kube.Get(g.t.Context(), client.ObjectKey{Namespace: g.Namespace, Name: "till"}, &till)
	if client.IgnoreNotFound(err) != nil {
		g.t.Fatal(err)
	}
	s.Generation, s.OldKeys = till.Status.KeyGeneration, len(till.Status.PreviousKeys)
	return s
}

func (g git) hasSecret(name string) bool {
	err := g.Kube.Get(g.t.Context(), client.ObjectKey{Namespace: g.Namespace, Name: name}, &corev1.Secret{})
	if client.IgnoreNotFound(err) != nil {
		g.t.Fatal(err)
	}
	return err == nil
}

// plan runs the command and returns the effects, each with its severity.
func (g git) plan(args string) (effects []string, code int) {
	g.t.Helper()
	got := run(g.t, g.Namespace, "plan -f "+g.dir+" -o json "+args)
	var report plan.Report
	if err := json.Unmarshal([]byte(got.out), &report); err != nil {
		g.t.Fatalf("%v\nstdout: %s\nstderr: %s", err, got.out, got.problems)
	}
	for _, change := range report.Changes {
		for _, effect := range change.Effects {
			effects = append(effects, effect.Type+" "+string(effect.Severity))
		}
	}
	return effects, got.code
}

// What is in Git before each case.
const (
	acme = "{displayName: Acme}"
	till = "{merchantRef: {name: acme}}"
)

// working is a first key that works.
var working = seen{Answer: http.StatusOK, Generation: 1, Secret: true}

// planned are changes, what the plan says of them, and what then happens.
var planned = map[string]struct {
	// merchant and key are the specs in Git before; empty: acme and till.
	merchant, key string
	// newMerchant and newKey are the specs after; empty: the same.
	newMerchant, newKey string
	args                string
	effects             []string
	// happened is what is seen after the sync; refused is in what the API server says.
	happened seen
	refused  string
}{
	"nothing changes":       {happened: working},
	"a name payers see":     {newMerchant: "{displayName: Acme Coffee}", happened: working},
	"a trigger":             {newKey: "{merchantRef: {name: acme}, rotation: {trigger: a}}", effects: []string{"KeyRotates ends"}, happened: seen{http.StatusOK, 2, 1, true, false}},
	"a trigger, no overlap": {newKey: "{merchantRef: {name: acme}, rotation: {trigger: a, overlapSeconds: 0}}", effects: []string{"KeyRotates ends"}, happened: seen{http.StatusUnauthorized, 2, 0, true, false}},
	"a trigger of a disabled key": {
		key:     "{merchantRef: {name: acme}, state: Disabled}",
		newKey:  "{merchantRef: {name: acme}, state: Disabled, rotation: {trigger: a}}",
		effects: []string{"KeyRotates note"}, happened: seen{http.StatusUnauthorized, 2, 1, true, false},
	},
	"only the overlap": {newKey: "{merchantRef: {name: acme}, rotation: {overlapSeconds: 0}}", happened: working},
	"no overlap with a schedule": {
		key:     "{merchantRef: {name: acme}, rotation: {everySeconds: 86400}}",
		newKey:  "{merchantRef: {name: acme}, rotation: {everySeconds: 86400, overlapSeconds: 0}}",
		effects: []string{"OverlapShortens may"}, happened: working,
	},
	"a schedule without an overlap": {
		newKey:  "{merchantRef: {name: acme}, rotation: {everySeconds: 86400, overlapSeconds: 0}}",
		effects: []string{"RotationScheduled note", "OverlapShortens may"}, happened: working,
	},
	"a longer overlap with a schedule": {
		key:    "{merchantRef: {name: acme}, rotation: {everySeconds: 86400, overlapSeconds: 0}}",
		newKey: "{merchantRef: {name: acme}, rotation: {everySeconds: 86400, overlapSeconds: 60}}", happened: working,
	},
	"a wrong state, and fewer permissions": {
		newKey:  "{merchantRef: {name: acme}, state: Stopped, permissions: [create]}",
		effects: []string{"Refused refused", "PermissionsEnd ends"}, happened: working, refused: "Unsupported value",
	},
	"a wrong mode of a Merchant, and suspend": {
		newMerchant: "{displayName: Acme, state: Suspended, ipAllowlistMode: Strict}",
		effects:     []string{"Refused refused", "MerchantStops ends"}, happened: working, refused: "Unsupported value",
	},
	"a schedule": {newKey: "{merchantRef: {name: acme}, rotation: {everySeconds: 86400}}", effects: []string{"RotationScheduled note"}, happened: working},
	"another digest": {
		newKey:  "{merchantRef: {name: acme}, keyDigest: " + apikey.NewDigest("a key from a vault").Hex() + "}",
		effects: []string{"KeyRotates ends", "SecretDeleted ends"}, happened: seen{http.StatusOK, 2, 1, false, false},
	},
	"disable": {newKey: "{merchantRef: {name: acme}, state: Disabled}", effects: []string{"KeyDisabled ends"}, happened: seen{http.StatusUnauthorized, 1, 0, true, false}},
	"enable": {
		key: "{merchantRef: {name: acme}, state: Disabled}", newKey: till,
		effects: []string{"KeyEnabled note"}, happened: working,
	},
	"an expiry that is past":   {newKey: "{merchantRef: {name: acme}, expiresAt: '2020-01-01T00:00:00Z'}", effects: []string{"KeyExpires ends"}, happened: seen{http.StatusUnauthorized, 1, 0, true, false}},
	"an expiry":                {newKey: "{merchantRef: {name: acme}, expiresAt: '2999-01-01T00:00:00Z'}", effects: []string{"KeyExpires ends"}, happened: working},
	"an expiry is taken away":  {key: "{merchantRef: {name: acme}, expiresAt: '2999-01-01T00:00:00Z'}", newKey: till, effects: []string{"KeyExpiresLater note"}, happened: working},
	"another Secret":           {newKey: "{merchantRef: {name: acme}, delivery: {secretName: other}}", effects: []string{"SecretDeleted ends"}, happened: seen{http.StatusOK, 1, 0, false, false}},
	"no delivery":              {newKey: "{merchantRef: {name: acme}, delivery: {policy: None}}", effects: []string{"SecretDeleted ends"}, happened: seen{http.StatusOK, 1, 0, false, false}},
	"delivery of no key yet":   {key: "{merchantRef: {name: acme}, delivery: {policy: None}}", newKey: till, effects: []string{"KeyIssued note"}, happened: seen{http.StatusUnauthorized, 2, 1, true, false}},
	"fewer permissions":        {newKey: "{merchantRef: {name: acme}, permissions: [create, cancel]}", effects: []string{"PermissionsEnd ends"}, happened: seen{http.StatusForbidden, 1, 0, true, false}},
	"permissions in all words": {newKey: "{merchantRef: {name: acme}, permissions: [rotate, cancel, list, read, create]}", happened: working},
	"more permissions": {
		key: "{merchantRef: {name: acme}, permissions: [create]}", newKey: "{merchantRef: {name: acme}, permissions: [create, read]}",
		effects: []string{"PermissionsGranted note"}, happened: working,
	},
	"other permissions": {
		key: "{merchantRef: {name: acme}, permissions: [read]}", newKey: "{merchantRef: {name: acme}, permissions: [list]}",
		effects: []string{"PermissionsEnd ends", "PermissionsGranted note"}, happened: seen{http.StatusForbidden, 1, 0, true, false},
	},
	"fewer permissions of a disabled key": {
		key: "{merchantRef: {name: acme}, state: Disabled}", newKey: "{merchantRef: {name: acme}, state: Disabled, permissions: [create]}",
		effects: []string{"PermissionsEnd note"}, happened: seen{http.StatusUnauthorized, 1, 0, true, false},
	},
	"no permission": {newKey: "{merchantRef: {name: acme}, permissions: []}", effects: []string{"Refused refused"}, happened: working, refused: "should have at least 1 items"},
	"an allowlist of the key": {
		newKey: "{merchantRef: {name: acme}, ipAllowlist: [192.0.2.0/24]}", effects: []string{"AllowlistNarrows may"}, happened: seen{http.StatusUnauthorized, 1, 0, true, false},
	},
	"an allowlist of the key that reports": {
		merchant: "{displayName: Acme, ipAllowlistMode: Report}", newKey: "{merchantRef: {name: acme}, ipAllowlist: [192.0.2.0/24]}",
		effects: []string{"AllowlistNarrows may"}, happened: working,
	},
	"no allowlist of the key any more": {
		key: "{merchantRef: {name: acme}, ipAllowlist: [203.0.113.7]}", newKey: till, effects: []string{"AllowlistWidens note"}, happened: working,
	},
	"another Merchant":          {newKey: "{merchantRef: {name: other}}", effects: []string{"Refused refused"}, happened: working, refused: "merchantRef is immutable"},
	"a field that is none":      {newKey: "{merchantRef: {name: acme}, expires: tomorrow}", effects: []string{"Refused refused"}, happened: working, refused: "field not declared in schema"},
	"the key leaves Git":        {newKey: "-", args: "--prune", effects: []string{"NoManifest may", "KeyEnds ends"}, happened: seen{Answer: http.StatusUnauthorized}},
	"the Merchant leaves Git":   {newMerchant: "-", args: "--prune", effects: []string{"NoManifest may", "KeysEnd ends", "SessionsEnd may", "MerchantMissing may"}, happened: seen{http.StatusUnauthorized, 1, 0, true, false}},
	"suspend":                   {newMerchant: "{displayName: Acme, state: Suspended}", effects: []string{"MerchantStops ends"}, happened: seen{http.StatusForbidden, 1, 0, true, false}},
	"close":                     {newMerchant: "{displayName: Acme, state: Closed}", effects: []string{"MerchantStops ends"}, happened: seen{http.StatusForbidden, 1, 0, true, false}},
	"resume":                    {merchant: "{displayName: Acme, state: Suspended}", newMerchant: acme, effects: []string{"MerchantResumes note"}, happened: working},
	"an allowlist":              {newMerchant: "{displayName: Acme, ipAllowlist: [192.0.2.0/24]}", effects: []string{"AllowlistNarrows may"}, happened: seen{http.StatusUnauthorized, 1, 0, true, false}},
	"an allowlist that reports": {newMerchant: "{displayName: Acme, ipAllowlist: [192.0.2.0/24], ipAllowlistMode: Report}", happened: working},
	"from Report to Enforce": {
		merchant: "{displayName: Acme, ipAllowlist: [192.0.2.0/24], ipAllowlistMode: Report}", newMerchant: "{displayName: Acme, ipAllowlist: [192.0.2.0/24]}",
		effects: []string{"AllowlistNarrows may"}, happened: seen{http.StatusUnauthorized, 1, 0, true, false},
	},
	"the same addresses in two halves": {
		merchant: "{displayName: Acme, ipAllowlist: [203.0.113.0/24]}", newMerchant: "{displayName: Acme, ipAllowlist: [203.0.113.0/25, 203.0.113.128/25]}", happened: working,
	},
	"one half of the addresses": {
		merchant: "{displayName: Acme, ipAllowlist: [203.0.113.0/24]}", newMerchant: "{displayName: Acme, ipAllowlist: [203.0.113.128/25]}",
		effects: []string{"AllowlistNarrows may"}, happened: seen{http.StatusUnauthorized, 1, 0, true, false},
	},
	"a wider allowlist": {
		merchant: "{displayName: Acme, ipAllowlist: [203.0.113.7]}", newMerchant: "{displayName: Acme, ipAllowlist: [203.0.113.0/24]}", effects: []string{"AllowlistWidens note"}, happened: working,
	},
	"no webhook any more": {
		merchant: "{displayName: Acme, webhook: {url: 'https://shop.example/hooks'}}", newMerchant: acme,
		effects: []string{"WebhookEnds ends"}, happened: working,
	},
	"another URL": {
		merchant: "{displayName: Acme, webhook: {url: 'https://shop.example/hooks'}}", newMerchant: "{displayName: Acme, webhook: {url: 'https://shop.example/new'}}",
		effects: []string{"WebhookMoves note"}, happened: seen{http.StatusOK, 1, 0, true, true},
	},
	"a block with host bits": {newMerchant: "{displayName: Acme, ipAllowlist: [203.0.113.7/24]}", effects: []string{"Refused refused"}, happened: working, refused: "without host bits"},
	"both: a trigger, and suspend": {
		newMerchant: "{displayName: Acme, state: Suspended}", newKey: "{merchantRef: {name: acme}, rotation: {trigger: a}}",
		effects: []string{"MerchantStops ends", "KeyRotates ends"}, happened: seen{http.StatusForbidden, 2, 1, true, false},
	},
}

// Each change is planned, and then made: what the plan says happens, and nothing else ends.
func TestPlan_IsWhatHappens(t *testing.T) {
	t.Parallel()
	for name, test := range planned {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGit(t)
			g.commit("Merchant", "acme", or(test.merchant, acme))
			g.commit("ApiKey", "till", or(test.key, till))
			g.sync()
			key := "mk_live_none"
			if !strings.Contains(test.key, "None") {
				key = g.Delivered("till-key", "apiKey")
			}
			// The API has seen the key, or nothing it could accept.
			g.Eventually("the API knows the key", func() bool {
				return strings.Contains(test.key, "None") || strings.Contains(test.key, "Disabled") || me(t, key, anywhere) != http.StatusUnauthorized
			})
			var before seen
			g.Eventually("status has the key", func() bool { before = g.look(key); return before.Generation > 0 })

			g.commit("Merchant", "acme", or(test.newMerchant, or(test.merchant, acme)))
			g.commit("ApiKey", "till", or(test.newKey, or(test.key, till)))
			effects, code := g.plan(test.args)
			if diff := cmp.Diff(test.effects, effects); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			quiet := !slices.ContainsFunc(effects, func(effect string) bool { return !strings.HasSuffix(effect, " note") })
			if want := map[bool]int{true: terminal.ExitDone, false: terminal.ExitEnds}[quiet]; code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			if again := g.look(key); again != before {
				t.Errorf("the plan has changed something: %+v, before %+v", again, before)
			}

			refused := errors.Join(g.sync()...)
			if (refused == nil) != (test.refused == "") || refused != nil && !strings.Contains(refused.Error(), test.refused) {
				t.Errorf("refused: %v, want %q", refused, test.refused)
			}
			var after seen
			g.Eventually("it is as expected", func() bool { after = g.look(key); return after == test.happened || t.Failed() })
			if ended := before.Answer == http.StatusOK && after.Answer != http.StatusOK || before.Secret && !after.Secret || before.Webhook && !after.Webhook; ended && quiet {
				t.Errorf("it ended something, and the plan did not say so: %+v, before %+v", after, before)
			}
		})
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// A digest that another ApiKey has is Stalled after the sync, as the plan says, and its owner's namespace may be another tenant's.
func TestPlan_DigestOfAnother(t *testing.T) {
	t.Parallel()
	owner, g := newTenant(t), newGit(t)
	digest := apikey.NewDigest("a till's key from a vault " + owner.Namespace).Hex()
	owner.Merchant("acme")
	first := &v1alpha1.ApiKey{Spec: v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "acme"}, KeyDigest: digest}}
	first.Namespace, first.Name = owner.Namespace, "till"
	if err := owner.Kube.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	owner.AwaitReady(first)
	g.commit("Merchant", "acme", acme)
	g.commit("ApiKey", "till", "{merchantRef: {name: acme}, keyDigest: "+digest+"}")
	got := run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitEnds, "MAY END  Another ApiKey has this spec.keyDigest: "+owner.Namespace+"/till")
	if strings.Contains(got.out, digest) {
		t.Error("the plan prints a digest")
	}
	g.sync()
	run(t, g.Namespace, "status acme").want(t, terminal.ExitNegative, "KeyDigestClaimed")
}

// With --prune the plan has what the tool manages, and not what a person made. It says that it does not know what the tool deletes: an annotation,
// for example, may keep an object.
func TestPlan_Prune(t *testing.T) {
	t.Parallel()
	g := newGit(t)
	for _, key := range []string{"till", "kiosk", "kept"} {
		g.commit("ApiKey", key, till)
	}
	g.commit("Merchant", "acme", acme)
	g.sync()
	g.ApiKey("console", "acme")
	kept := g.apiKey("kept")
	g.Change(&kept, func() { kept.Annotations = map[string]string{"kustomize.toolkit.fluxcd.io/prune": "disabled"} })
	for _, key := range []string{"kiosk", "kept"} {
		g.commit("ApiKey", key, "-")
	}
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitDone, "0 to delete", "2 unchanged")
	for _, args := range []string{"", " -A"} {
		got := run(t, g.Namespace, "plan --prune -f "+g.dir+args).want(t, terminal.ExitEnds, "- ApiKey "+g.Namespace+"/kiosk", "- ApiKey "+g.Namespace+"/kept",
			"MAY END  No manifest has this object, which Flux (Kustomization "+g.Namespace+"/shops) manages. This plan does not know whether that tool deletes it",
			"ENDS     The key gets 401 permanently", "2 to delete")
		if strings.Contains(got.out, "console") {
			t.Errorf("it deletes what the tool does not:\n%s", got.out)
		}
	}
	if g.apiKey("kiosk").DeletionTimestamp != nil {
		t.Error("the plan has deleted something")
	}
}

// kubectl apply compares with the manifest that it applied last: what left the manifest leaves the object.
func TestPlan_AfterKubectlApply(t *testing.T) {
	t.Parallel()
	g := newGit(t)
	g.commit("Merchant", "acme", "{displayName: Acme, ipAllowlist: [203.0.113.0/24]}")
	g.commit("ApiKey", "till", till)
	apply := func() {
		if _, err := installation.Kubectl("", "apply", "-n", g.Namespace, "-f", g.dir); err != nil {
			t.Fatal(err)
		}
		g.Eventually("the operator has handled it", g.handled)
	}
	apply()
	g.commit("Merchant", "acme", acme)
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitDone, "~ Merchant "+g.Namespace+"/acme", "spec.ipAllowlist", "Keys are accepted from any address")
	apply()
	var merchant v1alpha1.Merchant
	if err := g.Kube.Get(t.Context(), client.ObjectKey{Namespace: g.Namespace, Name: "acme"}, &merchant); err != nil || len(merchant.Spec.IPAllowlist) > 0 {
		t.Errorf("%v, %v", merchant.Spec.IPAllowlist, err)
	}
	// A field that somebody else set stays: it never was in the manifest.
	g.Change(&merchant, func() { merchant.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	g.Eventually("the operator has handled it", g.handled)
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitDone, "2 unchanged")
}

// One wrong value hides no other one: the API server checks its rules only when every value has the right form.
func TestPlan_AllThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string // the spec of the ApiKey; before empty: it is new
		want          []string
	}{
		"a wrong enum and an immutable field": {till, "{merchantRef: {name: other}, state: Stopped}", []string{
			`spec.state: Unsupported value: "Stopped": supported values: "Active", "Disabled"`, "spec.merchantRef: Invalid value: merchantRef is immutable",
		}},
		"a wrong enum and a rule about two fields": {"", "{merchantRef: {name: acme}, state: Stopped, keyDigest: " + strings.Repeat("0f", 32) + ", delivery: {secretName: a}}", []string{
			`spec.state: Unsupported value: "Stopped"`, "keyDigest",
		}},
		"a field that is none, a wrong enum and an immutable field": {till, "{merchantRef: {name: other}, state: Stopped, expires: tomorrow, rotation: {every: 5}}", []string{
			"spec.expires: field not declared in schema", "spec.rotation.every: field not declared in schema", `spec.state: Unsupported value: "Stopped"`, "merchantRef is immutable",
		}},
		"a state that YAML takes for no text": {till, "{merchantRef: {name: other}, state: Off}", []string{"spec.state: expected string, got false", "merchantRef is immutable"}},
		"a missing Merchant and a wrong enum": {"", "{state: Stopped}", []string{"spec.merchantRef: Required value", `spec.state: Unsupported value: "Stopped"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGit(t)
			g.commit("Merchant", "acme", acme)
			if test.before != "" {
				g.commit("ApiKey", "till", test.before)
			}
			g.sync()
			g.commit("ApiKey", "till", test.after)
			got := run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitEnds, append(test.want, "1 refused")...)
			if strings.Contains(got.out, "<nil>") || strings.Contains(got.out, "&value") {
				t.Errorf("not in words for people:\n%s", got.out)
			}
		})
	}
}

// What is applied is not always what the files have. The plan says so; it does not guess.
func TestPlan_Unbuilt(t *testing.T) {
	t.Parallel()
	const ours = "apiVersion: merchant-operator.io/v1alpha1\nkind: "
	disabled := ours + "ApiKey\nmetadata: {name: till}\nspec: {merchantRef: {name: acme}, state: Disabled}\n"
	flux := func(spec string) string {
		return "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: shops, namespace: flux-system}\nspec: {interval: 1m, prune: true" + spec + "}\n"
	}
	unbuilt := []string{"MAY END  ", "This plan does not know the result. Pipe what is applied: flux build kustomization"}
	for name, test := range map[string]struct {
		manifest string
		code     int
		want     []string
	}{
		"a list of a kind of its own":            {"apiVersion: grafana.example/v1\nkind: DashboardList\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(disabled), "\n", "\n  "), terminal.ExitEnds, []string{"All keys of this ApiKey get 401"}},
		"items of a kind that is no list":        {"apiVersion: grafana.example/v1\nkind: Folder\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(disabled), "\n", "\n  "), terminal.ExitEnds, []string{"All keys of this ApiKey get 401"}},
		"a list of our kind, items without one":  {ours + "ApiKeyList\nitems:\n- metadata: {name: till}\n  spec: {merchantRef: {name: acme}, state: Disabled}\n", terminal.ExitEnds, []string{"All keys of this ApiKey get 401"}},
		"items that are no objects":              {"apiVersion: grafana.example/v1\nkind: DashboardList\nitems: [one, two]\n", terminal.ExitDone, []string{"1 object of other kinds"}},
		"a variable":                             {ours + "ApiKey\nmetadata: {name: till}\nspec:\n  merchantRef: {name: acme}\n  state: ${state:=Active}\n", terminal.ExitEnds, append(unbuilt, "? ApiKey ", "The manifest has ${…}", "1 unknown")},
		"a variable in a text that anything is":  {ours + "Merchant\nmetadata: {name: acme}\nspec: {displayName: \"Shop ${name}\"}\n", terminal.ExitEnds, append(unbuilt, "? Merchant ", "The manifest has ${…}")},
		"a variable as namespace":                {strings.Replace(disabled, "{name: till}", `{name: till, namespace: "${namespace}"}`, 1), terminal.ExitEnds, append(unbuilt, "? ApiKey ${namespace}/till")},
		"a Kustomization of Flux with postBuild": {flux(", postBuild: {substitute: {a: b}}"), terminal.ExitEnds, append(unbuilt, "? Kustomization flux-system/shops", "by spec.postBuild.")},
		"one with a targetNamespace":             {flux(", targetNamespace: elsewhere"), terminal.ExitEnds, append(unbuilt, "by spec.targetNamespace.")},
		"one with patches and a suffix":          {flux(", patches: [], nameSuffix: -b"), terminal.ExitEnds, append(unbuilt, "by spec.nameSuffix, spec.patches.")},
		"one that changes nothing":               {flux(""), terminal.ExitDone, []string{"1 object of other kinds"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGit(t)
			g.commit("Merchant", "acme", acme)
			g.commit("ApiKey", "till", till)
			g.sync()
			g.Eventually("the key is known", func() bool { return g.apiKey("till").Status.KeyGeneration == 1 })
			file := filepath.Join(t.TempDir(), "all.yaml")
			if err := os.WriteFile(file, []byte(test.manifest), 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, g.Namespace, "plan -f "+file).want(t, test.code, test.want...)
		})
	}
}

// Flux takes over what a person made, and may remove what was set with kubectl and is in no manifest, a trigger for example. Which fields a tool
// removes, the plan does not know; it names those that only the cluster has.
func TestPlan_NotInManifest(t *testing.T) {
	t.Parallel()
	const warning, rotates = "Only the cluster has a value for ", "spec.rotation.trigger. This plan does not know whether the tool that applies the manifests keeps or removes it. Without its trigger the key is replaced."
	g := newGit(t)
	g.commit("Merchant", "acme", acme)
	g.sync()
	run(t, g.Namespace, "keys issue till --merchant acme --permissions all").want(t, terminal.ExitDone)
	g.commit("ApiKey", "till", till)
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitDone, "2 unchanged") // defaults are no fields to remove
	run(t, g.Namespace, "keys rotate till --trigger INC-4711").want(t, terminal.ExitDone)
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitEnds, "MAY END  "+warning, rotates)
	g.commit("ApiKey", "till", "{merchantRef: {name: acme}, rotation: {trigger: INC-4711}}")
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitDone, "2 unchanged")

	// Flux manages it, and a person has changed it with kubectl.
	g.commit("ApiKey", "till", till)
	g.takeOver("till")
	g.sync()
	if key := g.apiKey("till"); key.Spec.Rotation.Trigger != "" || key.Status.KeyGeneration != 3 {
		t.Errorf("after Flux has taken it over: trigger %q, generation %d", key.Spec.Rotation.Trigger, key.Status.KeyGeneration)
	}
	g.kubectl("patch", "apikey", "till", "--type=merge", "--patch", `{"spec":{"rotation":{"trigger":"by-hand"}}}`)
	g.Eventually("the operator has handled it", g.handled)
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitEnds, "MAY END  "+warning, rotates)

	// kubectl apply keeps what another command of kubectl has set.
	g.commit("ApiKey", "kiosk", till)
	g.kubectl("apply", "-f", filepath.Join(g.dir, "apikey-kiosk.yaml"))
	g.kubectl("label", "apikey", "kiosk", "kustomize.toolkit.fluxcd.io/name-")
	g.commit("ApiKey", "till", "-")
	g.kubectl("patch", "apikey", "kiosk", "--type=merge", "--patch", `{"spec":{"state":"Disabled"}}`)
	g.Eventually("the operator has handled it", g.handled)
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitDone, "note     "+warning, "spec.state.")
}

func (g git) kubectl(arguments ...string) {
	g.t.Helper()
	if _, err := installation.Kubectl("", append([]string{"-n", g.Namespace}, arguments...)...); err != nil {
		g.t.Fatal(err)
	}
}

// takeOver does what Flux does before it applies: what managers of kubectl own is its own.
func (g git) takeOver(name string) {
	g.t.Helper()
	key := g.apiKey(name)
	for i, entry := range key.ManagedFields {
		if strings.HasPrefix(entry.Manager, "kubectl") && entry.Subresource == "" {
			key.ManagedFields[i].Manager, key.ManagedFields[i].Operation = "kustomize-controller", metav1.ManagedFieldsOperationApply
		}
	}
	if err := g.Kube.Update(g.t.Context(), &key); err != nil {
		g.t.Fatal(err)
	}
}

// A namespace that does not exist refuses its objects; one that the manifests create is not checked.
func TestPlan_MissingNamespace(t *testing.T) {
	t.Parallel()
	g := newGit(t)
	missing := g.Namespace + "-new"
	manifest := "apiVersion: merchant-operator.io/v1alpha1\nkind: Merchant\nmetadata: {name: acme, namespace: " + missing + "}\nspec: {displayName: Acme}\n"
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(g.dir, "all.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(manifest)
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitEnds, "! Merchant "+missing+"/acme", "REFUSED", "not found")
	write(manifest + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + missing + "}\n")
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitEnds, "+ Merchant "+missing+"/acme", "MAY END", "did not check", "1 object of other kinds")
	err := g.Kube.Get(t.Context(), client.ObjectKey{Name: missing}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is there: %v", err)
	}
}

// A manifest may give an object an owner, which takes it with it.
func TestPlan_OwnerReferences(t *testing.T) {
	t.Parallel()
	g := newGit(t)
	manifest := "apiVersion: merchant-operator.io/v1alpha1\nkind: Merchant\nmetadata:\n  name: acme\n" +
		"  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: shop, uid: 0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e}]\nspec: {displayName: Acme}\n"
	file := filepath.Join(g.dir, "acme.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	warning := func() {
		run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitEnds, "MAY END", "metadata.ownerReferences has Deployment/shop")
	}
	warning()
	g.Merchant("acme")
	warning()
	g.sync()
	got := run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitEnds, "1 unchanged", "Only the cluster has a value for spec.rateLimit.burst")
	if strings.Contains(got.out, "ownerReferences") {
		t.Errorf("it warns of an owner that the object has already:\n%s", got.out)
	}
}

// Without the right to list one of the namespaces there is no plan, and no half of one: an error names the namespace and the right.
func TestPlan_ForbiddenNamespace(t *testing.T) {
	t.Parallel()
	g := newGit(t)
	other := kubetest.Namespace(t, installation.Environment.Config, "shops-")
	g.commit("Merchant", "acme", acme)
	manifest := "apiVersion: merchant-operator.io/v1alpha1\nkind: Merchant\nmetadata: {name: books, namespace: " + other + "}\nspec: {displayName: Books}\n"
	if err := os.WriteFile(filepath.Join(g.dir, "books.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	name := g.Namespace + "-planner"
	kubeconfig, rules := user(t, name), documented(t)["merchant-planner"]
	grant(t, name, g.Namespace, rules...)
	var got result
	forbidden := func(namespace string) bool {
		got = runAs(t, kubeconfig, g.Namespace, "", "plan", "-f", g.dir)
		return strings.Contains(got.problems, name+" may not list merchants in namespace "+namespace)
	}
	g.Eventually("the rights are in force", func() bool { return !forbidden(g.Namespace) })
	if !forbidden(other) || got.code != terminal.ExitError || got.out != "" {
		t.Errorf("exit code %d\nstdout: %s\nstderr: %s", got.code, got.out, got.problems)
	}
	run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitDone, "2 to create")
	grant(t, name, other, rules...)
	g.Eventually("the rights are in force", func() bool { return !forbidden(other) && !forbidden(g.Namespace) })
	got.want(t, terminal.ExitDone, "2 to create")
}

// Whatever a merge request calls its objects, the plan is made.
func TestPlan_StrangeObjects(t *testing.T) {
	t.Parallel()
	g := newGit(t)
	text := "apiVersion: merchant-operator.io/v1alpha1\nkind: Merchant\nmetadata: {name: \"\\e[31m../../x\"}\nspec: {displayName: Acme}\n---\n" +
		"apiVersion: merchant-operator.io/v9\nkind: Merchant\nmetadata: {name: later}\n---\n" +
		"apiVersion: merchant-operator.io/v1alpha1\nkind: Apikey\nmetadata: {name: typo}\n---\n" +
		"apiVersion: merchant-operator.io/v1alpha1\nkind: Merchant\nmetadata: {namespace: A_b, name: acme}\n---\n" +
		"apiVersion: merchant-operator.io/v1alpha1\nkind: Merchant\nmetadata: {generateName: acme-}\n---\n" +
		"apiVersion: merchant-operator.io/v1alpha1\nkind: Merchant\nmetadata: {name: none, managedFields: [{manager: x}]}\nspec: 7\n"
	if err := os.WriteFile(filepath.Join(g.dir, "all.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(t, g.Namespace, "plan -f "+g.dir).want(t, terminal.ExitEnds, "0 to create", "6 refused", "there is no kind Apikey", "there is no kind Merchant in merchant-operator.io/v9", "metadata.name is missing", "metadata.namespace is not")
	if strings.Contains(got.out, "\x1b") {
		t.Error("an object's name reaches the terminal as it is")
	}
	run(t, g.Namespace, "plan -f "+g.dir+" -f "+g.dir).want(t, terminal.ExitError, "is there twice")
}

// The plan writes nothing and reads no Secret, by the API server's own log. Its account may do nothing but dry runs.
func TestPlan_WritesNothing(t *testing.T) {
	t.Parallel()
	g := newGit(t)
	applied := map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"}
	g.Merchant("acme", func(m *v1alpha1.Merchant) { m.Annotations = applied })
	for _, name := range []string{"till", "gone"} {
		key := &v1alpha1.ApiKey{Spec: v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "acme"}}}
		key.Namespace, key.Name, key.Annotations = g.Namespace, name, applied
		if err := g.Kube.Create(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	g.commit("Merchant", "acme", "{displayName: Acme Coffee, state: Suspended}")
	g.commit("ApiKey", "till", "{merchantRef: {name: acme}, keyDigest: "+apikey.NewDigest("a key from a vault").Hex()+"}")
	g.commit("ApiKey", "new", till)
	kubeconfig := planAccount(t, g)
	runAs(t, kubeconfig, g.Namespace, "", "plan", "-f", g.dir, "--prune").want(t, terminal.ExitEnds, "1 to create, 2 to change, 1 to delete, 0 refused")
	// The second list of ApiKeys is of all namespaces, which this account may not.
	want := map[string]int{"list merchants": 1, "list apikeys": 2, "dry run: patch merchants": 2, "dry run: patch apikeys": 3, "dry run: delete apikeys": 1}
	if diff := cmp.Diff(want, planRequests(t, g)); diff != "" {
		t.Errorf("requests in the audit log (-want +got):\n%s", diff)
	}
	var keys v1alpha1.ApiKeyList
	if err := g.Kube.List(t.Context(), &keys, client.InNamespace(g.Namespace)); err != nil || len(keys.Items) != 2 || keys.Items[0].Generation != 1 || keys.Items[1].Generation != 1 {
		t.Errorf("%v, %+v", err, keys.Items)
	}
}

// planAccount is a kubeconfig of the account in docs/examples/plan, when its policy is in force.
func planAccount(t *testing.T, g git) (kubeconfig string) {
	t.Helper()
	own := strings.NewReplacer("shops", g.Namespace, "merchant-planner-dry-run", "merchant-planner-dry-run-"+g.Namespace)
	for document := range strings.SplitSeq(own.Replace(repository.Read(t, "docs", "examples", "plan", "rights.yaml")), "\n---\n") {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := g.Kube.Create(t.Context(), &object); err != nil {
			t.Fatal(err)
		}
		if object.GetNamespace() == "" {
			t.Cleanup(func() { must(0, g.Kube.Delete(context.WithoutCancel(t.Context()), &object))(t) })
		}
	}
	kubeconfig = must(installation.UserKubeconfig(envtest.User{Name: g.planner()}))(t)
	config := must(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	kube := must(client.New(config, client.Options{Scheme: installation.Client.Scheme()}))(t)
	g.Eventually("the policy refuses a write", func() bool {
		probe := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "probe"}, Spec: v1alpha1.MerchantSpec{DisplayName: "Probe"}}
		err := kube.Create(t.Context(), probe)
		if err == nil {
			g.Delete(probe)
		}
		return err != nil && strings.Contains(err.Error(), "merchant-planner may do dry runs only")
	})
	return kubeconfig
}

func (g git) planner() string { return "system:serviceaccount:" + g.Namespace + ":merchant-planner" }

// planRequests counts what the plugin asked the API server as the planner.
func planRequests(t *testing.T, g git) map[string]int {
	t.Helper()
	requests := map[string]int{}
	for _, request := range must(audited.Requests())(t) {
		if request.User != g.planner() || !strings.HasPrefix(request.UserAgent, cluster.FieldOwner) {
			continue
		}
		what := request.Verb + " " + request.Resource
		if request.DryRun {
			what = "dry run: " + what
		}
		requests[what]++
	}
	return requests
}

// The script of docs/examples/plan/workflow.yaml distinguishes its three results.
func TestPlan_ExampleWorkflow(t *testing.T) {
	t.Parallel()
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(repository.Read(t, "docs", "examples", "plan", "workflow.yaml")), &workflow); err != nil {
		t.Fatal(err)
	}
	g := newGit(t)
	g.commit("Merchant", "acme", acme)
	g.commit("ApiKey", "till", till)
	g.sync()
	steps := workflow.Jobs["plan"].Steps
	script := steps[slices.IndexFunc(steps, func(s struct{ Name, Run string }) bool { return s.Name == "Plan" })].Run
	output, summaries := filepath.Join(t.TempDir(), "output"), filepath.Join(t.TempDir(), "summary")
	s := newShell(t, "KUBECONFIG_PLAN="+string(must(os.ReadFile(admin))(t)), "GITHUB_OUTPUT="+output, "GITHUB_STEP_SUMMARY="+summaries, "RUNNER_TEMP="+t.TempDir())
	if err := os.Symlink(g.dir, filepath.Join(s.directory, "merchants")); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		key    string
		output string
		fails  bool
	}{{till, "ends=no\n", false}, {"-", "ends=no\nends=yes\n", false}, {"{", "ends=no\nends=yes\n", true}} {
		g.commit("ApiKey", "till", step.key)
		printed, err := s.run("set -e\n" + strings.ReplaceAll(script, "-n shops", "-n "+g.Namespace))
		if got := string(must(os.ReadFile(output))(t)); (err != nil) != step.fails || got != step.output {
			t.Errorf("%q: %v, output %q\n%s", step.key, err, got, printed)
		}
	}
	if summary := string(must(os.ReadFile(summaries))(t)); !strings.Contains(summary, "**delete `ApiKey`** `"+g.Namespace+"/till`") {
		t.Errorf("the summary is\n%s", summary)
	}
}
