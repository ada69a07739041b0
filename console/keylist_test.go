package console

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// A namespace full of ApiKeys with a megabyte each is never in memory as a whole, and none of them is left out.
func TestListKeys_Pages(t *testing.T) {
	const keys = 2*keysPage + 3
	list := func(_ context.Context, _ client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
		var asked client.ListOptions
		asked.ApplyOptions(options)
		if asked.Limit != keysPage || asked.Namespace != "shops" {
			t.Errorf("asked for %d objects of namespace %q", asked.Limit, asked.Namespace)
		}
		page := into.(*v1alpha1.ApiKeyList)
		first, _ := strconv.Atoi(asked.Continue)
		for i := first; i < min(first+keysPage, keys); i++ {
			key := v1alpha1.ApiKey{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "shops", Name: "till-" + strconv.Itoa(1000+i), Finalizers: []string{strings.Repeat("x", 1<<10)},
					Annotations: map[string]string{"argocd.argoproj.io/tracking-id": "shop:x"},
				},
				Spec:   v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "coffee"}},
				Status: v1alpha1.ApiKeyStatus{Conditions: []metav1.Condition{{Type: v1alpha1.UsableCondition, Status: "True", Message: strings.Repeat("x", 1<<10)}}},
			}
			if i == 1 {
				key.Spec.MerchantRef.Name = "books"
			}
			page.Items = append(page.Items, key)
		}
		if page.Continue = ""; first+keysPage < keys {
			page.Continue = strconv.Itoa(first + keysPage)
		}
		return nil
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &console{now: time.Now, kube: fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{List: list}).Build()}
	rows, err := c.listKeys(t.Context(), &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "coffee"}})
	if err != nil || len(rows) != keys-1 {
		t.Fatalf("%d keys (%v), want those of the merchant: %d", len(rows), err, keys-1)
	}
	for _, row := range rows {
		want := metav1.ObjectMeta{Namespace: "shops", Name: row.Name}
		if diff := cmp.Diff(want, row.ObjectMeta); diff != "" || row.Status.Conditions != nil {
			t.Fatalf("kept of the metadata (-want +got):\n%s", diff)
		}
		if row.Problem != "" || row.Manager != (gitops.Manager{Tool: "Argo CD", Source: "application shop"}) {
			t.Fatalf("problem %q, managed by %+v", row.Problem, row.Manager)
		}
	}
}

// What a shop owner reads of an old key: that it is used, that it is not, or that nobody knows.
func TestNewKeyRow_OldKeyUse(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	used := metav1.NewTime(now.Add(-5 * time.Minute))
	for status, want := range map[metav1.ConditionStatus]oldKeyUse{
		metav1.ConditionTrue:    {Used: true, Last: &used},
		metav1.ConditionFalse:   {Last: &used},
		metav1.ConditionUnknown: {Unknown: true, Last: &used},
		"":                      {Unknown: true, Last: &used},
	} {
		key := v1alpha1.ApiKey{}
		key.Status.PreviousKeys = []v1alpha1.PreviousKey{
			{ValidUntil: metav1.NewTime(now.Add(time.Hour))},
			{ValidUntil: metav1.NewTime(now.Add(time.Minute)), LastUsedTime: &used},
		}
		if status != "" {
			key.Status.Conditions = []metav1.Condition{{Type: v1alpha1.OldKeyInUseCondition, Status: status}}
		}
		if diff := cmp.Diff(want, newKeyRow(english(t), key, now).OldKeyUse); diff != "" {
			t.Errorf("status %q (-want +got):\n%s", status, diff)
		}
		if row := newKeyRow(english(t), key, now.Add(2*time.Hour)); row.Overlap != nil || row.OldKeyUse != (oldKeyUse{}) {
			t.Errorf("after the overlap: %+v", row.OldKeyUse)
		}
	}
}

// A line says what ends when, and its details what the key may do and from where.
func TestMerchantPage_KeyDetails(t *testing.T) {
	f := newFixture(t)
	f.merchant("acme")
	f.grant(user(alice), []string{"get"})
	for name, test := range map[string]struct {
		spec   v1alpha1.ApiKeySpec
		status v1alpha1.ApiKeyStatus
		want   []string
	}{
		"till": {
			v1alpha1.ApiKeySpec{Permissions: v1alpha1.TillPermissions(), IPAllowlist: []v1alpha1.IPBlock{"203.0.113.7", "2001:db8::/48"}}, v1alpha1.ApiKeyStatus{},
			[]string{"What it may do Create payments, read them, cancel payments", "Accepted from 203.0.113.7, 2001:db8::/48"},
		},
		"server": {v1alpha1.ApiKeySpec{}, v1alpha1.ApiKeyStatus{}, []string{"What it may do Everything", "Accepted from the addresses of the merchant’s list"}},
		"ends": {
			v1alpha1.ApiKeySpec{ExpiresAt: &metav1.Time{Time: time.Now().Add(100 * 24 * time.Hour)}},
			v1alpha1.ApiKeyStatus{
				NextRotationTime: &metav1.Time{Time: time.Now().Add(50 * 24 * time.Hour)},
				PreviousKeys:     []v1alpha1.PreviousKey{{ValidUntil: metav1.NewTime(time.Now().Add(time.Hour))}},
			},
			[]string{"The old key ends ", "Expires on ", "It is replaced on "},
		},
	} {
		key := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}, Spec: test.spec}
		key.Spec.MerchantRef.Name = "acme"
		f.create(key)
		key.Status = test.status
		if err := cluster.Client.Status().Update(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		page := f.signedIn(alice).Get(t, f.URL+"/merchants/"+f.namespace+"/acme").Text
		_, line, _ := strings.Cut(page, `id="key-`+name+`"`)
		line, _, _ = strings.Cut(line, "</li>")
		line = strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(strings.ReplaceAll(line, "</dt>", " "), "")), " ")
		for _, want := range test.want {
			if !strings.Contains(line, want) {
				t.Errorf("%s does not say %q: %s", name, want, line)
			}
		}
	}
}
