package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/keys"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// Nothing in the report is a secret of this run, in any of its usual forms, wherever a person has put it.
func TestReport_NoSecret(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	secrets := map[string]string{"of a person": "ann@shops.example", "in a URL": "t0ken-in-url", "password": "hunter2", "a person's name": "Ann Example"}
	merchant := n.Merchant("acme", func(m *v1alpha1.Merchant) {
		m.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks/" + secrets["in a URL"] + "?token=" + secrets["in a URL"]}
		m.Spec.Page = &v1alpha1.PageSettings{ReturnURL: "https://shop.example/?t=" + secrets["in a URL"]}
		m.Annotations = map[string]string{"note": secrets["password"]}
	})
	key, plaintext := n.ApiKey("till", "acme")
	external := strings.Repeat("e", 40)
	claimed := keys.New("external", "acme", "", keys.DefaultOverlap)
	claimed.Namespace, claimed.Spec.KeyDigest = n.Namespace, apikey.NewDigest(external).Hex()
	if err := installation.Client.Create(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	n.AwaitReady(claimed)
	eventuallyMe(t, n, plaintext, http.StatusOK)
	// A person writes a key where it does not belong, and the console the name of a person.
	n.Change(key, func() { key.Spec.Rotation.Trigger = secrets["a person's name"] + " asked, the old was " + plaintext })
	n.Change(merchant, func() { merchant.Spec.Webhook.RotationTrigger = "for " + secrets["a person's name"] })
	if err := installation.Client.Patch(t.Context(), merchant, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.FieldOwner(secrets["a person's name"])); err != nil {
		t.Fatal(err)
	}
	run(t, n.Namespace, "keys disable till").want(t, terminal.ExitDone)
	unissued := n.Unissued("console", "acme")
	path, body := fixture.RotateByID(unissued, 1, 0)
	body = strings.Replace(body, `"ann"`, `"`+secrets["of a person"]+`"`, 1)
	issued, err := fixture.Call(fixture.Insecure, replica.Internal, http.MethodPost, path, n.IssuerToken(), body)
	if err != nil || issued.Status != http.StatusOK {
		t.Fatalf("%d %s, %v", issued.Status, issued.Raw, err)
	}
	n.Eventually("its status has the person", func() bool {
		return installation.Client.Get(t.Context(), client.ObjectKeyFromObject(unissued), unissued) == nil && unissued.Status.LastRotation.Actor != ""
	})
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, GenerateName: "console-"}, EventTime: metav1.NowMicro(), Type: corev1.EventTypeNormal,
		ReportingController: "merchant-operator-console", ReportingInstance: "test", Action: "Rotate", Reason: "Rotated", Note: secrets["a person's name"] + " rotated the key",
		Regarding: corev1.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Merchant", Namespace: n.Namespace, Name: merchant.Name},
	}
	ofAnother := event.DeepCopy()
	ofAnother.ReportingController = "policy-engine"
	for _, each := range []*eventsv1.Event{event, ofAnother} {
		if err := installation.Client.Create(t.Context(), each); err != nil {
			t.Fatal(err)
		}
	}

	secrets["a key"], secrets["an issued key"], secrets["an external key"] = plaintext, issued.Text("fullKey"), external
	for _, namespace := range []string{n.Namespace, kubetest.CredentialsNamespace} {
		var all corev1.SecretList
		if err := installation.Client.List(t.Context(), &all, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			for field, value := range all.Items[i].Data {
				if field == "apiKey" || field == "secret" {
					secrets[all.Items[i].Name+"/"+field] = string(value)
				}
			}
		}
	}
	report := run(t, n.Namespace, "report").want(t, terminal.ExitDone)
	for what, secret := range secrets {
		digest := apikey.NewDigest(secret)
		for form, text := range map[string]string{
			"as it is": secret, "in base64": base64.StdEncoding.EncodeToString([]byte(secret)), "its digest": digest.Hex(),
			"its digest in base64": base64.StdEncoding.EncodeToString(digest[:]), "in hex": hex.EncodeToString([]byte(secret)),
		} {
			if strings.Contains(report.out+report.problems, text) {
				t.Errorf("the report has a secret: %s, %s", what, form)
			}
		}
	}
	if strings.Contains(report.out, plaintext[:len(key.Status.Prefix)+1]) {
		t.Error("the report has more of a key than its prefix")
	}
	// It is of use all the same.
	for _, word := range []string{"name: acme", "name: till", key.Status.KeyID, key.Status.Prefix, "https://shop.example/[redacted]", "reason: Disabled", "keyDigest: '[redacted]'", "merchant-operator-kubectl"} {
		if !strings.Contains(report.out, word) {
			t.Errorf("no %q in\n%s", word, report.out)
		}
	}
	if err := yaml.Unmarshal(bytes.TrimSpace([]byte(report.out)), &map[string]any{}); err != nil {
		t.Error(err)
	}
}

// A report that lacks a part does not name the person who lacks the right.
func TestReport_MissingRight(t *testing.T) {
	t.Parallel()
	n := newTenant(t)
	report := runAs(t, admin, n.Namespace, "", "report", "--as", "Ann Example").want(t, terminal.ExitDone)
	if !strings.Contains(report.out, "may not list") || strings.Contains(report.out, "Ann") {
		t.Errorf("%s\n%s", report.out, report.problems)
	}
}
