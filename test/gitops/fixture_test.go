//go:build gitops

package gitops

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/fluxtest"
)

// clone is the directory that the page's commands create.
func (p *pipeline) clone() string { return filepath.Join(p.workDir, "platform") }

// git runs a Git command in the clone.
func (s step) git(arguments ...string) {
	s.T.Helper()
	git := exec.CommandContext(s.T.Context(), "git", arguments...)
	git.Dir, git.Env = s.clone(), append(os.Environ(), s.gitConfig()...)
	if output, err := git.CombinedOutput(); err != nil {
		s.T.Fatalf("git %v: %v\n%s", arguments, err, output)
	}
}

func (p *pipeline) manifest(shop string) string {
	return filepath.Join(p.clone(), "merchants", shop+".yaml")
}

// edit replaces a text, which has to be there once, in the manifests of a shop.
func (s step) edit(shop, old, replacement string) {
	s.T.Helper()
	content, err := os.ReadFile(s.manifest(shop))
	if err != nil {
		s.T.Fatal(err)
	}
	if strings.Count(string(content), old) != 1 {
		s.T.Fatalf("%s does not have %q once:\n%s", shop, old, content)
	}
	s.write(shop, strings.Replace(string(content), old, replacement, 1))
}

// setMerchant adds a field, which is a line, to the spec of the Merchant of a shop.
func (s step) setMerchant(shop, field string) {
	s.T.Helper()
	s.edit(shop, "  displayName: ", "  "+field+"\n  displayName: ")
}

// setKey adds a field, which is a line, to the spec of the ApiKey of a shop.
func (s step) setKey(shop, field string) {
	s.T.Helper()
	s.edit(shop, "  merchantRef: ", "  "+field+"\n  merchantRef: ")
}

// unset removes a field, which is a line, of the Merchant or the ApiKey of a shop.
func (s step) unset(shop, field string) {
	s.T.Helper()
	s.edit(shop, "  "+field+"\n", "")
}

// removeKey removes the ApiKey of a shop, which is the second of its manifests.
func (s step) removeKey(shop string) {
	s.T.Helper()
	content, err := os.ReadFile(s.manifest(shop))
	if err != nil {
		s.T.Fatal(err)
	}
	merchant, _, found := strings.Cut(string(content), "---\n")
	if !found {
		s.T.Fatalf("%s has one manifest:\n%s", shop, content)
	}
	s.write(shop, merchant)
}

// remove removes all manifests of a shop.
func (s step) remove(shop string) {
	s.T.Helper()
	if err := os.Remove(s.manifest(shop)); err != nil {
		s.T.Fatal(err)
	}
}

func (s step) write(shop, content string) {
	s.T.Helper()
	if err := os.WriteFile(s.manifest(shop), []byte(content), 0o600); err != nil {
		s.T.Fatal(err)
	}
}

// push commits everything and pushes it.
func (s step) push(message string) {
	s.T.Helper()
	s.git("add", "--all")
	s.git("commit", "--quiet", "--message", message)
	s.git("push", "--quiet", "origin", "HEAD:main")
}

const (
	namespace = "shops"     // of the page's manifests
	merchants = "merchants" // the page's Kustomization
)

// sync commits and pushes what was edited, and returns how that ended.
func (s step) sync(message string) fluxtest.Result {
	s.T.Helper()
	s.push(message)
	return s.flux.Synced(s.T, merchants)
}

// mustSync is sync for a step that is no row: it has to become Ready, if need be with a retry.
func (s step) mustSync(message string) {
	s.T.Helper()
	s.push(message)
	s.becomesReady()
}

// becomesReady waits for the Kustomization to retry until it is Ready, and returns how that ended.
func (s step) becomesReady() fluxtest.Result {
	s.T.Helper()
	const tries = 10
	var result fluxtest.Result
	for range tries {
		if result = s.flux.Synced(s.T, merchants); result.Ready {
			return result
		}
		if result = s.flux.Sync(s.T, merchants); result.Ready {
			return result
		}
	}
	s.T.Fatalf("the Kustomization does not become Ready: %+v", result)
	return result
}

// apiKey reads the ApiKey of a shop.
func (s step) apiKey(shop string) *v1alpha1.ApiKey {
	s.T.Helper()
	key := &v1alpha1.ApiKey{}
	s.get(shop+"-till", key)
	return key
}

func (s step) merchant(shop string) *v1alpha1.Merchant {
	s.T.Helper()
	merchant := &v1alpha1.Merchant{}
	s.get(shop, merchant)
	return merchant
}

// delivered is the key in the Secret of a shop.
func (s step) delivered(shop string) string {
	s.T.Helper()
	var secret corev1.Secret
	s.get(shop+"-till-key", &secret)
	return string(secret.Data["apiKey"])
}

func (s step) get(name string, into client.Object) {
	s.T.Helper()
	if err := s.Client.Get(s.T.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		s.T.Fatal(err)
	}
}

func (s step) gone(name string, object client.Object) bool {
	s.T.Helper()
	err := s.Client.Get(s.T.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if err != nil && !apierrors.IsNotFound(err) {
		s.T.Fatal(err)
	}
	return err != nil
}

// answers waits until the API gives this answer to the key.
func (s step) answers(key string, want int) {
	s.T.Helper()
	await.Seeing(s.T, fixture.Patience, fmt.Sprintf("the API answers %d to the key", want), func() (string, bool) {
		got := s.use(key)
		return fmt.Sprint(got), got == want
	})
}

// use is what the API answers to the key.
func (s step) use(key string) int {
	s.T.Helper()
	answer, err := fixture.Call(http.DefaultClient, s.api.Public, http.MethodGet, fixture.Me, key, "")
	if err != nil {
		s.T.Fatal(err)
	}
	return answer.Status
}

// readiness is what kubectl shows of an ApiKey.
func (s step) readiness(name string) string {
	s.T.Helper()
	var key v1alpha1.ApiKey
	s.get(name, &key)
	ready := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.ReadyCondition)
	usable := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.UsableCondition)
	if ready == nil || usable == nil {
		return "no condition yet"
	}
	return fmt.Sprintf("READY %s, USABLE %s, REASON %s", ready.Status, usable.Status, ready.Reason)
}

// seeOnboarded uses the key of each merchant.
func (s step) seeOnboarded() line {
	s.T.Helper()
	result := s.flux.Synced(s.T, merchants)
	var keys v1alpha1.ApiKeyList
	if err := s.Client.List(s.T.Context(), &keys, client.InNamespace(namespace)); err != nil {
		s.T.Fatal(err)
	}
	const want = 50
	if len(keys.Items) != want {
		s.T.Fatalf("%d ApiKeys, want %d", len(keys.Items), want)
	}
	for _, key := range keys.Items {
		s.answers(s.delivered(key.Spec.MerchantRef.Name), http.StatusOK)
	}
	return line{"50 merchants with a key each, and the product", result, fmt.Sprintf("%d keys in their Secrets, all accepted", len(keys.Items))}
}

// plugin runs kubectl merchant in the namespace of the shops, as the administrator.
func (s step) plugin(arguments ...string) error {
	s.T.Helper()
	var out bytes.Buffer
	arguments = append(arguments, "--namespace", namespace, "--kubeconfig", filepath.Join(s.Dir, "admin.kubeconfig"))
	if code := cli.Execute(s.T.Context(), "v0.0.0", genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}, arguments); code != 0 {
		return fmt.Errorf("kubectl merchant %v: exit code %d\n%s", arguments, code, &out)
	}
	return nil
}

// lose removes all objects of a kind, whatever their finalizers.
func (s step) lose(namespace string, list client.ObjectList) {
	s.T.Helper()
	if err := s.Client.List(s.T.Context(), list, client.InNamespace(namespace)); err != nil {
		s.T.Fatal(err)
	}
	if err := meta.EachListItem(list, func(item runtime.Object) error {
		object := item.(client.Object)
		if err := s.Client.Patch(s.T.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			return err
		}
		return client.IgnoreNotFound(s.Client.Delete(s.T.Context(), object))
	}); err != nil {
		s.T.Fatal(err)
	}
}
