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
)

// TestNoSecretIsFoundAnywhere issues keys in every way there is, signs an event and lets a rail settle, and
// then reads, as an administrator would, everything the product has written except the delivered
// Secrets. What signs events is in the credentials namespace as well, and nowhere else.
func TestNoSecretIsFoundAnywhere(t *testing.T) {
	s := newScene(t)
	hooks := newReceiver(t, http.StatusInternalServerError)
	s.merchant("coffee", told(hooks))
	apiKey, first := s.apiKey("till", "coffee")
	s.eventuallyStatus(0, first, http.StatusOK)
	s.change(apiKey, func() { apiKey.Spec.Rotation.Trigger = "again" })
	s.waitReady(apiKey, conditionsOf(apiKey))
	second := s.delivered("till-key")
	s.eventuallyStatus(0, second, http.StatusOK)
	rotated := s.want(s.call(0, http.MethodPost, rotate, second, ""), http.StatusOK)
	third := rotated.body["fullKey"].(string)
	s.want(s.call(1, http.MethodPost, sessions, third, `{"amountCents":0}`), http.StatusBadRequest)
	s.waitReady(apiKey, conditionsOf(apiKey))
	signing, rail := s.signingSecret("coffee"), s.rail()
	id := s.charge(0, third)
	s.wantApplied(s.settle(0, rail, id, report("card-1", "COMPLETED")), true)
	s.eventually("the merchant is told", func() bool { return len(hooks.about(id)) > 0 })

	written := map[string]string{"logs": shared.logs.String()}
	for what, list := range map[string]client.ObjectList{
		"credentials Secrets":    &corev1.SecretList{},
		"credentials ConfigMaps": &corev1.ConfigMapList{},
	} {
		written[what] = s.dump(list, client.InNamespace(credentialsNamespace))
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
func (s scene) dump(list client.ObjectList, options ...client.ListOption) string {
	s.t.Helper()
	if err := shared.kube.List(s.t.Context(), list, options...); err != nil {
		s.t.Fatal(err)
	}
	text, err := json.Marshal(list)
	if err != nil {
		s.t.Fatal(err)
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
