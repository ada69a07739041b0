//go:build gitops

package gitops

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

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

const (
	namespace = "shops"     // of the page's manifests
	merchants = "merchants" // the page's Kustomization
)

// sync commits and pushes what was edited, and returns how that ended.
func (p *pipeline) sync(t *testing.T, message string) fluxtest.Result {
	t.Helper()
	p.push(t, message)
	return p.flux.Synced(t, merchants)
}

// mustSync is sync for a step that is no row: it has to become Ready, if need be with a retry.
func (p *pipeline) mustSync(t *testing.T, message string) {
	t.Helper()
	p.push(t, message)
	p.becomesReady(t)
}

// becomesReady waits for the Kustomization to retry until it is Ready, and returns how that ended.
func (p *pipeline) becomesReady(t *testing.T) fluxtest.Result {
	t.Helper()
	const tries = 10
	var result fluxtest.Result
	for range tries {
		if result = p.flux.Synced(t, merchants); result.Ready {
			return result
		}
		if result = p.flux.Sync(t, merchants); result.Ready {
			return result
		}
	}
	t.Fatalf("the Kustomization does not become Ready: %+v", result)
	return result
}

// apiKey reads the ApiKey of a shop.
func (p *pipeline) apiKey(t *testing.T, shop string) *v1alpha1.ApiKey {
	t.Helper()
	key := &v1alpha1.ApiKey{}
	p.get(t, shop+"-till", key)
	return key
}

func (p *pipeline) merchant(t *testing.T, shop string) *v1alpha1.Merchant {
	t.Helper()
	merchant := &v1alpha1.Merchant{}
	p.get(t, shop, merchant)
	return merchant
}

// delivered is the key in the Secret of a shop.
func (p *pipeline) delivered(t *testing.T, shop string) string {
	t.Helper()
	var secret corev1.Secret
	p.get(t, shop+"-till-key", &secret)
	return string(secret.Data["apiKey"])
}

func (p *pipeline) get(t *testing.T, name string, into client.Object) {
	t.Helper()
	if err := p.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
		t.Fatal(err)
	}
}

func (p *pipeline) gone(t *testing.T, name string, object client.Object) bool {
	t.Helper()
	err := p.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err != nil
}

// answers waits until the API gives this answer to the key.
func (p *pipeline) answers(t *testing.T, key string, want int) {
	t.Helper()
	await.Seeing(t, fixture.Patience, fmt.Sprintf("the API answers %d to the key", want), func() (string, bool) {
		got := p.use(t, key)
		return fmt.Sprint(got), got == want
	})
}

// use is what the API answers to the key.
func (p *pipeline) use(t *testing.T, key string) int {
	t.Helper()
	answer, err := fixture.Call(http.DefaultClient, p.api.Public, http.MethodGet, fixture.Me, key, "")
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status
}

// readiness is what kubectl shows of an ApiKey.
func (p *pipeline) readiness(t *testing.T, name string) string {
	t.Helper()
	var key v1alpha1.ApiKey
	p.get(t, name, &key)
	ready := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.ReadyCondition)
	if ready == nil {
		return "no condition yet"
	}
	return fmt.Sprintf("READY %s, REASON %s", ready.Status, ready.Reason)
}

// seeOnboarded uses the key of each merchant.
func (p *pipeline) seeOnboarded(t *testing.T) line {
	t.Helper()
	result := p.flux.Synced(t, merchants)
	var keys v1alpha1.ApiKeyList
	if err := p.Client.List(t.Context(), &keys, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	const want = 50
	if len(keys.Items) != want {
		t.Fatalf("%d ApiKeys, want %d", len(keys.Items), want)
	}
	for _, key := range keys.Items {
		p.answers(t, p.delivered(t, key.Spec.MerchantRef.Name), http.StatusOK)
	}
	return line{"50 merchants with a key each, and the product", result, fmt.Sprintf("%d keys in their Secrets, all accepted", len(keys.Items))}
}

// plugin runs kubectl merchant in the namespace of the shops, as the administrator.
func (p *pipeline) plugin(t *testing.T, arguments ...string) error {
	t.Helper()
	var out bytes.Buffer
	arguments = append(arguments, "--namespace", namespace, "--kubeconfig", filepath.Join(p.Dir, "admin.kubeconfig"))
	if code := cli.Execute(t.Context(), "v0.0.0", genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}, arguments); code != 0 {
		return fmt.Errorf("kubectl merchant %v: exit code %d\n%s", arguments, code, &out)
	}
	return nil
}

// lose removes all objects of a kind, whatever their finalizers.
func (p *pipeline) lose(t *testing.T, namespace string, list client.ObjectList) {
	t.Helper()
	if err := p.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if err := meta.EachListItem(list, func(item runtime.Object) error {
		object := item.(client.Object) //nolint:forcetypeassert // it is an item of a list of objects
		if err := p.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			return err
		}
		return client.IgnoreNotFound(p.Client.Delete(t.Context(), object))
	}); err != nil {
		t.Fatal(err)
	}
}
