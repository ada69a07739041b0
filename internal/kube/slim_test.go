package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

func nested(depth int, leaf string) string {
	return strings.Repeat(`{"a":[`, depth/2) + leaf + strings.Repeat(`]}`, depth/2)
}

func TestSlimBody_Nesting(t *testing.T) {
	const strange = `{"{[\"\\":"}]\\\"[","b":[1,-2.5e3,true,null,{}]}`
	for name, tc := range map[string]struct{ json, want string }{
		"flat":                 {strange, strange},
		"several, as a watch":  {strange + "\n" + strange, strange + "\n" + strange},
		"as deep as it may be": {nested(maxNesting, ""), nested(maxNesting, "")},
		"too deep":             {`[` + nested(9_998, `"x"`) + `,7]`, `[` + nested(maxNesting-2, `{}`) + `,7]`},
		"strange, and too deep": {
			nested(maxNesting, strange) + strange, nested(maxNesting, "") + strange,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, reader := range []io.Reader{strings.NewReader(tc.json), iotest.OneByteReader(strings.NewReader(tc.json))} {
				got, err := io.ReadAll(&slimBody{ReadCloser: io.NopCloser(reader)})
				if err != nil || string(got) != tc.want {
					t.Errorf("%v: read %.200s, want %.200s", err, got, tc.want)
				}
			}
		})
	}
}

// Of the metadata that tenants write only what is kept is read, wherever the object is in the answer.
func TestSlimBody_Metadata(t *testing.T) {
	keep := newKeptMetadata(Keep{Keys: []string{"example.com/ours"}, Managers: []string{"argocd-controller"}})
	many := func(element string) string { return strings.Repeat(element+",", 5000) }
	long := strings.Repeat("x", 1<<20)
	full := `{"kind":"ApiKey","metadata":{"name":"till","labels":{` + many(`"theirs":"x"`) + `"example.com/ours":"a\"b}",` + many(`"theirs":"x"`) + `"last":"x"},` +
		`"annotations":{"example.com/ours":"` + long + `","theirs":"` + long + `"},` +
		`"finalizers":[` + many(`"example.com/theirs"`) + `"` + v1alpha1.Finalizer + `"],` +
		`"ownerReferences":[` + many(`{"kind":"ConfigMap","name":"\"controller\":true"}`) + `{"kind":"ApiKey","controller":true}],` +
		`"managedFields":[` + many(`{"manager":"kubectl","fieldsV1":{}}`) + many(`{"manager":"argocd-controller","fieldsV1":{"f:a":{"k:{\"b\":1}":{}},"f:c":{}}}`) +
		`{"manager":"` + long + `"}],"uid":"1"},"spec":{"metadata":{"labels":{"theirs":"x"}}},"status":{"conditions":[{"message":"ok"}]}}`
	argo := `{"manager":"argocd-controller","fieldsV1":{}}`
	read := `{"kind":"ApiKey","metadata":{"name":"till","labels":{"example.com/ours":"a\"b}"},"annotations":{},` +
		`"finalizers":["` + v1alpha1.Finalizer + `"],"ownerReferences":[{"kind":"ApiKey","controller":true}],` +
		`"managedFields":[` + strings.Join([]string{argo, argo, argo, argo}, ",") + `],"uid":"1"},` +
		`"spec":{"metadata":{"labels":{"theirs":"x"}}},"status":{"conditions":[{"message":"ok"}]}}`
	text := strings.Repeat("x", maxText-1)
	for name, tc := range map[string]struct{ json, want string }{
		"object": {full, read},
		"list":   {`{"metadata":{"continue":"c"},"items":[` + full + `,` + full + `]}`, `{"metadata":{"continue":"c"},"items":[` + read + `,` + read + `]}`},
		"events of a watch": {
			`{"type":"ADDED","object":` + full + `}` + "\n" + `{"type":"DELETED","object":` + full + `}`,
			`{"type":"ADDED","object":` + read + `}` + "\n" + `{"type":"DELETED","object":` + read + `}`,
		},
		"with spaces": {
			`{ "metadata": { "finalizers": [ "theirs", "` + v1alpha1.Finalizer + `" ] } }`,
			`{ "metadata": { "finalizers": ["` + v1alpha1.Finalizer + `"] } }`,
		},
		"empty":              {`{"metadata":{"labels":{},"finalizers":[],"annotations":null}}`, `{"metadata":{"labels":{},"finalizers":[],"annotations":null}}`},
		"long text":          {`{"note":"` + long + `"}`, `{"note":"` + long[:maxText] + `"}`},
		"cut before a rune":  {`{"note":"` + text + `éé"}`, `{"note":"` + text + `é"}`},
		"cut before escapes": {`{"note":"` + text + `\u00e9\"\\y"}`, `{"note":"` + text + `\u00e9"}`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, reader := range []io.Reader{strings.NewReader(tc.json), iotest.OneByteReader(strings.NewReader(tc.json))} {
				got, err := io.ReadAll(&slimBody{ReadCloser: io.NopCloser(reader), keep: keep, maxText: maxText})
				if err != nil || string(got) != tc.want {
					t.Errorf("%v: read %.3000s\nwant %.3000s", err, got, tc.want)
				}
			}
		})
	}
}

// A tenant who may create an ApiKey sends managed fields of 9,995 levels, which the API server stores.
func TestBoundNesting_DeepManagedFields(t *testing.T) {
	cluster := kubetest.Start(t).Config
	connections, err := rest.HTTPClientFor(cluster)
	if err != nil {
		t.Fatal(err)
	}
	const levels = 9_995
	fields := strings.Repeat(`{"f:a":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1)
	object := fmt.Appendf(nil, `{"apiVersion": "merchant-operator.io/v1alpha1", "kind": "ApiKey", "spec": {"merchantRef": {"name": "acme"}},
		"metadata": {"name": "deep", "managedFields": [{"manager": "x", "operation": "Update", "apiVersion": "merchant-operator.io/v1alpha1",
		"time": "2026-01-01T12:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": %s}]}}`, fields)
	url := strings.TrimSuffix(cluster.Host, "/") + "/apis/merchant-operator.io/v1alpha1/namespaces/default/apikeys"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := connections.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("%s, %v", response.Status, err)
	}

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	list := func(config *rest.Config) error {
		c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		var keys v1alpha1.ApiKeyList
		if err := c.List(t.Context(), &keys); err != nil {
			return err
		}
		if len(keys.Items) != 1 || keys.Items[0].Spec.MerchantRef.Name != "acme" {
			t.Errorf("the list has %v", keys.Items)
		}
		events, err := c.Watch(t.Context(), &v1alpha1.ApiKeyList{})
		if err != nil {
			return err
		}
		defer events.Stop()
		select {
		case event := <-events.ResultChan():
			if key, ok := event.Object.(*v1alpha1.ApiKey); !ok || key.Name != "deep" {
				return fmt.Errorf("the event is %v", event)
			}
		case <-time.After(time.Minute):
			t.Error("no event")
		}
		return nil
	}
	if err := list(rest.CopyConfig(cluster)); err == nil {
		t.Error("the list of a plain client does not fail: BoundNesting is needed no more")
	}
	bounded := rest.CopyConfig(cluster)
	BoundNesting(bounded)
	if err := list(bounded); err != nil {
		t.Error(err)
	}
}

// Of an object with a megabyte of metadata no read, no list, no watch and no answer to a write brings
// more into memory than is kept, and it is written back whole only after a read that says so.
func TestSlim_EveryRead(t *testing.T) {
	cluster := kubetest.Start(t).Config
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	administrator, err := client.New(cluster, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	metadata := metav1.ObjectMeta{Namespace: "default", Name: "fat", Labels: map[string]string{"example.com/ours": "x"}}
	for i := range 2000 {
		metadata.Finalizers = append(metadata.Finalizers, fmt.Sprintf("example.com/%d%s", i, strings.Repeat("x", 40)))
		metadata.Labels[fmt.Sprintf("example.com/%d", i)] = strings.Repeat("x", 50)
	}
	secret := &corev1.Secret{ObjectMeta: metadata, Data: map[string][]byte{"apiKey": []byte("k")}}
	apiKey := &v1alpha1.ApiKey{ObjectMeta: metadata, Spec: v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "acme"}}}
	for _, object := range []client.Object{secret, apiKey} {
		if err := administrator.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}

	config := rest.CopyConfig(cluster)
	Slim(config, Keep{Keys: []string{"example.com/ours"}, Trusted: "credentials"})
	var read atomic.Int64
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && (strings.Contains(r.URL.Path, "/secrets") || strings.Contains(r.URL.Path, "/apikeys")) { // not discovery
				response.Body = countedBody{response.Body, &read}
			}
			return response, err
		})
	})
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	name := client.ObjectKeyFromObject(secret)
	newMetadata := func() *metav1.PartialObjectMetadata {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		return object
	}
	checked := func(object client.Object) error {
		if object.GetUID() == "" || object.GetLabels()["example.com/ours"] != "x" || len(object.GetLabels()) != 1 {
			return fmt.Errorf("%T %s has %d labels", object, object.GetUID(), len(object.GetLabels()))
		}
		return nil
	}
	get := func(ctx context.Context, object client.Object) error {
		return errors.Join(c.Get(ctx, name, object), checked(object))
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"theirs":"y"}}}`))
	for desc, call := range map[string]func() error{
		"a Secret":            func() error { return get(t.Context(), &corev1.Secret{}) },
		"metadata":            func() error { return get(t.Context(), newMetadata()) },
		"an ApiKey":           func() error { return get(t.Context(), &v1alpha1.ApiKey{}) },
		"a list of ApiKeys":   func() error { return c.List(t.Context(), &v1alpha1.ApiKeyList{}) },
		"a list of Secrets":   func() error { return c.List(t.Context(), &corev1.SecretList{}) },
		"a list of metadata":  func() error { return c.List(t.Context(), list) },
		"answer to a patch":   func() error { return c.Patch(t.Context(), apiKey.DeepCopy(), patch) },
		"answer for a Secret": func() error { return c.Patch(t.Context(), secret.DeepCopy(), patch) },
		"answer to a status": func() error {
			return c.Status().Patch(t.Context(), apiKey.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"keyID":"x"}}`)))
		},
		"a watch": func() error {
			events, err := c.Watch(t.Context(), &v1alpha1.ApiKeyList{})
			if err != nil {
				return err
			}
			defer events.Stop()
			event := <-events.ResultChan()
			object, ok := event.Object.(client.Object)
			if !ok {
				return fmt.Errorf("the event is %v", event)
			}
			return checked(object)
		},
	} {
		t.Run(desc, func(t *testing.T) {
			read.Store(0)
			if err := call(); err != nil {
				t.Error(err)
			}
			if n := read.Load(); n > 16<<10 {
				t.Errorf("%d bytes come into memory", n)
			}
		})
	}
	whole := &corev1.Secret{}
	if err := c.Get(WholeMetadata(t.Context()), name, whole); err != nil || len(whole.Finalizers) != len(metadata.Finalizers) {
		t.Errorf("a whole read has %d finalizers, %v; want %d", len(whole.Finalizers), err, len(metadata.Finalizers))
	}
}

type countedBody struct {
	io.ReadCloser

	read *atomic.Int64
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	return n, err
}
