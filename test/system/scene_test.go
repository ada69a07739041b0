package system

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/await"
)

// scene is one test's namespace with its merchants.
type scene struct {
	t         *testing.T
	namespace string
}

func newScene(t *testing.T) scene {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	if err := shared.kube.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return scene{t, namespace.Name}
}

// merchant applies a Merchant that the options change, without waiting for it.
func (s scene) merchant(name string, change ...func(*v1alpha1.Merchant)) *v1alpha1.Merchant {
	s.t.Helper()
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "Acme " + name,
			RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 10000, Burst: 100000},
		},
	}
	for _, c := range change {
		c(merchant)
	}
	if err := shared.kube.Create(s.t.Context(), merchant); err != nil {
		s.t.Fatal(err)
	}
	return merchant
}

// apiKey applies an ApiKey, waits until it is Ready and returns it with the delivered plaintext.
func (s scene) apiKey(name, merchant string, change ...func(*v1alpha1.ApiKey)) (*v1alpha1.ApiKey, string) {
	s.t.Helper()
	key := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1alpha1.ApiKeySpec{
			MerchantRef: v1alpha1.MerchantReference{Name: merchant},
			Delivery:    &v1alpha1.Delivery{SecretName: name + "-key"},
		},
	}
	for _, c := range change {
		c(key)
	}
	if err := shared.kube.Create(s.t.Context(), key); err != nil {
		s.t.Fatal(err)
	}
	s.waitReady(key, conditionsOf(key))
	return key, s.delivered(name + "-key")
}

// delivered returns the plaintext of a delivered Secret.
func (s scene) delivered(name string) string {
	s.t.Helper()
	var secret corev1.Secret
	if err := shared.kube.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, &secret); err != nil {
		s.t.Fatal(err)
	}
	return string(secret.Data["apiKey"])
}

func (s scene) waitReady(object client.Object, conditions func() []metav1.Condition) {
	s.t.Helper()
	s.eventually(object.GetName()+" is Ready", func() bool {
		if err := shared.kube.Get(s.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			s.t.Fatal(err)
		}
		ready := meta.FindStatusCondition(conditions(), v1alpha1.ReadyCondition)
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == object.GetGeneration()
	})
}

// conditionsOf reads the conditions of an ApiKey as it is when they are asked for.
func conditionsOf(key *v1alpha1.ApiKey) func() []metav1.Condition {
	return func() []metav1.Condition { return key.Status.Conditions }
}

// change edits the object in place and writes it.
func (s scene) change(object client.Object, edit func()) {
	s.t.Helper()
	before := object.DeepCopyObject().(client.Object)
	edit()
	if err := shared.kube.Patch(s.t.Context(), object, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

func (s scene) delete(object client.Object) {
	s.t.Helper()
	if err := shared.kube.Delete(s.t.Context(), object); err != nil {
		s.t.Fatal(err)
	}
}

func (s scene) gone(object client.Object) bool {
	s.t.Helper()
	err := shared.kube.Get(s.t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return err != nil
}

// eventually waits for a condition; what must hold at once is asserted without it.
func (s scene) eventually(what string, holds func() bool) {
	s.t.Helper()
	await.Until(s.t, patience, what, holds)
}

// eventuallyStatus waits until a replica answers a key with the status, on merchant/me.
func (s scene) eventuallyStatus(replica int, key string, status int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("replica %d answers %d", replica, status), func() bool {
		return s.try(replica, key) == status
	})
}

// answer is what a caller sees.
type answer struct {
	status int
	header http.Header
	raw    []byte
	body   map[string]any
}

// call sends one request to one replica. headers are pairs of name and value. Other goroutines than
// the test's may call it: status 0 means that there was no answer, and the test has failed.
func (s scene) call(replica int, method, path, key, body string, headers ...string) answer {
	s.t.Helper()
	return s.send(shared.replicas[replica], method, path, key, body, headers...)
}

// send sends one request with a bearer token, as call does.
func (s scene) send(base, method, path, key, body string, headers ...string) answer {
	s.t.Helper()
	request, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return answer{}
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Error(err)
		return answer{}
	}
	defer func() { _ = response.Body.Close() }()
	got := answer{status: response.StatusCode, header: response.Header}
	if got.raw, err = io.ReadAll(response.Body); err != nil {
		s.t.Error(err)
	}
	if bytes.HasPrefix(got.raw, []byte("{")) {
		if err := json.Unmarshal(got.raw, &got.body); err != nil {
			s.t.Errorf("%s %s answered no JSON: %s", method, path, got.raw)
		}
	}
	return got
}

// try asks a replica whether it accepts a key and returns the status.
func (s scene) try(replica int, key string) int {
	s.t.Helper()
	return s.call(replica, http.MethodGet, me, key, "").status
}

// want fails the test unless the answer has the status.
func (s scene) want(got answer, status int) answer {
	s.t.Helper()
	if got.status != status {
		s.t.Fatalf("status %d, want %d: %s", got.status, status, got.raw)
	}
	return got
}
