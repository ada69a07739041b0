package manifests

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/repository"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// auditPolicy is the one that docs/reference/audit.md shows.
var auditPolicy = repository.Path("docs", "examples", "audit-policy.yaml")

// auditEvent is what a kube-apiserver records of a request.
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	SourceIPs []string `json:"sourceIPs"`
	UserAgent string   `json:"userAgent"`
	Object    struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Request  json.RawMessage `json:"requestObject"`
	Response json.RawMessage `json:"responseObject"`
}

// With the policy a real kube-apiserver records who wrote which Merchant and ApiKey, and with which content; who wrote any Secret and read
// published ones, never with their content; and nothing of the operator's own statuses.
func TestAuditPolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	own, stop, err := kubetest.NewCluster(func(environment *envtest.Environment) {
		environment.ControlPlane.GetAPIServer().Configure().
			Set("audit-policy-file", auditPolicy).Set("audit-log-path", path).Set("audit-log-mode", "blocking")
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	as := func(name string, groups ...string) client.Client {
		user, err := own.Environment.AddUser(envtest.User{Name: name, Groups: append(groups, "system:masters")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		kube, err := client.New(user.Config(), client.Options{Scheme: own.Client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return kube
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const account = "system:serviceaccount:" + system + ":"
	ctx, ann := t.Context(), as("ann")
	operator, console := as(account+"merchant-operator", "system:serviceaccounts:"+system), as(account+"merchant-operator-console", "system:serviceaccounts:"+system)
	for _, name := range []string{tenant, credentials} {
		must(ann.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	merchant := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "acme"}, Spec: v1alpha1.MerchantSpec{DisplayName: "Acme"}}
	must(ann.Create(ctx, merchant))
	key := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "till"},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "acme"}},
	}
	must(ann.Create(ctx, key))
	const plaintext = "the content of a Secret"
	secret := func(namespace string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s"}, StringData: map[string]string{"a": plaintext}}
	}
	must(operator.Create(ctx, secret(credentials)))
	must(operator.Create(ctx, secret(tenant)))
	before := key.DeepCopy()
	key.Status.Prefix, key.Status.KeyID = "mk_live_abcdefgh2345_0123", "abcdefgh2345"
	must(operator.Status().Patch(ctx, key, client.MergeFrom(before)))
	before = key.DeepCopy()
	key.Spec.State = v1alpha1.ApiKeyDisabled
	must(ann.Patch(ctx, key, client.MergeFrom(before)))
	before = key.DeepCopy()
	key.Status.Prefix = "mk_live_abcdefgh2345_9999" // somebody forges it
	must(ann.Status().Patch(ctx, key, client.MergeFrom(before)))
	must(ann.Get(ctx, client.ObjectKeyFromObject(secret(credentials)), &corev1.Secret{}))
	must(ann.Get(ctx, client.ObjectKeyFromObject(key), &v1alpha1.ApiKey{}))
	must(ann.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "c"}}))
	before = key.DeepCopy()
	key.Labels = map[string]string{"state": "Disabled"}
	must(console.Patch(ctx, key, client.MergeFrom(before)))
	must(ann.Delete(ctx, key))

	var got []string
	for _, event := range auditEvents(t, path) {
		if event.User.Username != "ann" && !strings.HasPrefix(event.User.Username, account) {
			continue // the kube-apiserver itself
		}
		if event.UserAgent == "" || len(event.SourceIPs) == 0 {
			t.Errorf("it does not say from where: %+v", event)
		}
		object := event.Object
		line := strings.Join([]string{strings.TrimPrefix(event.User.Username, account), event.Verb,
			strings.TrimSuffix(object.Resource+"/"+object.Subresource, "/"), object.Namespace + "/" + object.Name}, " ")
		if string(event.Request) != "" {
			line += " with content"
		}
		if object.Resource == "apikeys" && event.Verb == "patch" && object.Subresource == "" && !strings.Contains(string(event.Request), "Disabled") {
			t.Errorf("it does not say what was written: %s", event.Request)
		}
		if len(event.Response) > 0 {
			t.Errorf("the answer is recorded: %s", line)
		}
		got = append(got, line)
	}
	want := []string{
		"ann create merchants shops/acme with content",
		"ann create apikeys shops/till with content",
		"merchant-operator create secrets " + credentials + "/s",
		"merchant-operator create secrets shops/s",
		"ann patch apikeys shops/till with content",
		"ann patch apikeys/status shops/till with content",
		"ann get secrets " + credentials + "/s",
		"merchant-operator-console patch apikeys shops/till with content",
		"ann delete apikeys shops/till with content", // the options of the deletion
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +recorded):\n%s", diff)
	}
	if data, err := os.ReadFile(path); err != nil || strings.Contains(string(data), plaintext) {
		t.Errorf("the log has the content of a Secret, or cannot be read: %v", err)
	}
}

// auditEvents are those of requests that were answered.
func auditEvents(t *testing.T, path string) (events []auditEvent) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		events = append(events, event)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}
