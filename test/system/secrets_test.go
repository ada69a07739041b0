package system

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// TestSecrets_InNothingWritten issues keys in every way there is, signs an event and lets a rail settle, and
// then reads, as an administrator would, everything the product has written except the delivered
// Secrets. What signs events is in the credentials namespace as well, and nowhere else.
func TestSecrets_InNothingWritten(t *testing.T) {
	s := newTenant(t)
	hooks := newReceiver(t, func(before int, _ *http.Request) int {
		if before == 0 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	apiKey, first := s.till(subscribe(hooks))
	s.Change(apiKey, func() { apiKey.Spec.Rotation.Trigger = "again" })
	s.AwaitReady(apiKey)
	second := s.Delivered("till-key", "apiKey")
	s.eventuallyStatus(0, second, http.StatusOK)
	rotated := s.want(s.call(0, http.MethodPost, rotate, second, ""), http.StatusOK)
	third := rotated.Body["fullKey"].(string)
	s.want(s.call(1, http.MethodPost, sessions, third, `{"amountCents":0}`), http.StatusBadRequest)
	s.AwaitReady(apiKey)
	unissued, issuer := s.Unissued("issued", "coffee"), s.IssuerToken()
	issued := s.firstKey(issuer, unissued)
	s.want(s.issue(1, issuer, unissued, 1, 0), http.StatusConflict)
	s.want(s.call(1, http.MethodPost, sessions, issued, `{"amountCents":0}`), http.StatusBadRequest)
	signing, rail := s.signingSecret("coffee"), s.RailToken()
	id := s.charge(0, third)
	s.wantApplied(s.settle(0, rail, id, report("card-1", "COMPLETED")), true)
	s.Eventually("the merchant gets the event", func() bool { return len(hooks.About(id)) > 0 })

	written := map[string]string{"logs": shared.Logs.String()}
	for what, list := range map[string]client.ObjectList{
		"credentials Secrets":    &corev1.SecretList{},
		"credentials ConfigMaps": &corev1.ConfigMapList{},
	} {
		written[what] = s.dump(list, client.InNamespace(kubetest.CredentialsNamespace))
	}
	for what, list := range map[string]client.ObjectList{
		"ApiKeys":   &v1alpha1.ApiKeyList{},
		"Merchants": &v1alpha1.MerchantList{},
		"Events":    &eventsv1.EventList{},
	} {
		written[what] = s.dump(list)
	}
	for what, text := range written {
		if text == "" {
			t.Errorf("%s: nothing was written, so nothing was searched", what)
		}
		for name, secret := range map[string]string{
			"first key": unlabelled(first), "second key": unlabelled(second), "third key": unlabelled(third),
			"issued key": unlabelled(issued), "issuer's token": issuer,
			"signing secret": unlabelled(signing), "rail's token": rail,
		} {
			if strings.Contains(text, secret) && (name != "signing secret" || what != "credentials Secrets") {
				t.Errorf("the %s is in the %s", name, what)
			}
		}
	}
}

// unlabelled is what is secret of a key.
func unlabelled(key string) string { return key[strings.LastIndexByte(key, '_')+1:] }

// dump returns a list as text, with the data of Secrets decoded.
func (s tenant) dump(list client.ObjectList, options ...client.ListOption) string {
	s.T.Helper()
	if err := s.Kube.List(s.T.Context(), list, options...); err != nil {
		s.T.Fatal(err)
	}
	text, err := json.Marshal(list)
	if err != nil {
		s.T.Fatal(err)
	}
	out := string(text)
	if secrets, ok := list.(*corev1.SecretList); ok {
		for _, secret := range secrets.Items {
			for _, value := range secret.Data {
				out += "\n" + string(value)
			}
		}
	}
	return out
}
