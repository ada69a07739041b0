package console

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
	"github.com/merchant-operator/merchant-operator/test/await"
)

// fattened returns an ApiKey full of each kind of metadata that a tenant may write.
func fattened(key *v1alpha1.ApiKey) *v1alpha1.ApiKey {
	long := strings.Repeat("x", 200)
	key.Labels, key.Annotations = map[string]string{}, map[string]string{"argocd.argoproj.io/tracking-id": "shop:x"}
	for i := range 1000 {
		key.Finalizers = append(key.Finalizers, "example.com/"+strconv.Itoa(i)+long[:40])
	}
	for i := range 500 {
		key.Labels["example.com/"+strconv.Itoa(i)] = long[:50]
	}
	for i := range 300 {
		key.Annotations["example.com/"+strconv.Itoa(i)] = long
	}
	for i := range 200 {
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: strconv.Itoa(i) + long, UID: types.UID(strconv.Itoa(i))}
		key.OwnerReferences = append(key.OwnerReferences, owner)
	}
	return key
}

// Names for the pages of payments, and the number of keys for the form of a new one, come from the watch.
func TestKnownKeys_NoReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	merchant := f.merchant("coffee")
	key := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "till"},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "coffee"}},
	}
	f.create(key)
	f.create(&v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "other"},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "books"}},
	})
	f.keysRead.Store(0)
	names, err := f.objects.KeyNames(t.Context(), merchant)
	if diff := cmp.Diff(map[string]string{published.ID(key.UID): "till"}, names); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if read := f.keysRead.Load(); read != 0 {
		t.Errorf("%d reads of ApiKeys", read)
	}
}

// The page of a neighbour opens while a tenant's ApiKeys in the same namespace are full of
// metadata: it reads the keys of its own Merchant only. Of the fat ones, whose page opens too,
// nothing comes into memory that no page shows.
// It counts bytes, so no test runs beside it.
func TestListKeys_FatNeighbour(t *testing.T) {
	f := newFixture(t)
	f.merchant("coffee")
	f.merchant("fat")
	f.grant(user(alice), []string{"get"})
	key := func(name, merchant string) *v1alpha1.ApiKey {
		return &v1alpha1.ApiKey{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: merchant}},
		}
	}
	const fat, own = 6, 3
	for i := range fat {
		one := fattened(key("fat-"+strconv.Itoa(i), "fat"))
		f.create(one)
		t.Cleanup(func() { // else it stays for other tests
			unheld := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			if err := client.IgnoreNotFound(cluster.Client.Patch(context.WithoutCancel(t.Context()), one, unheld)); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range own {
		f.create(key("till-"+strconv.Itoa(i), "coffee"))
	}
	if read := f.readBytes.Load(); read > 1<<20 {
		t.Errorf("the watches read %d bytes", read)
	}
	browser := f.signedIn(alice)
	for _, tc := range []struct {
		merchant  string
		keys      int64
		shown     string
		readBytes int64
	}{
		{"coffee", own, "till-2", 64 << 10},
		{"fat", fat, "fat-5", 64 << 10},
	} {
		t.Run(tc.merchant, func(t *testing.T) {
			f.keysRead.Store(0)
			f.readBytes.Store(0)
			page := browser.Get(t, f.URL+"/merchants/"+f.namespace+"/"+tc.merchant)
			if page.Status != http.StatusOK || !strings.Contains(page.Text, tc.shown) {
				t.Errorf("%d, the page does not show %s: %s", page.Status, tc.shown, page.Text)
			}
			if read := f.keysRead.Load(); read != tc.keys {
				t.Errorf("%d reads of ApiKeys, want one for each of %d", read, tc.keys)
			}
			if read := f.readBytes.Load(); read > tc.readBytes {
				t.Errorf("the page reads %d bytes, want at most %d", read, tc.readBytes)
			}
		})
	}
}

// A page shows a bounded number of keys, and says so. Those that need attention are among them.
// It counts bytes, so no test runs beside it.
func TestListKeys_Many(t *testing.T) {
	f := newFixture(t)
	f.merchant("coffee")
	f.grant(user(alice), []string{"get"})
	const many = keys.MaxShown + 3
	for i := range many {
		f.create(&v1alpha1.ApiKey{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: fmt.Sprintf("till-%03d", i)},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "coffee"}},
		})
	}
	last := &v1alpha1.ApiKey{}
	name := client.ObjectKey{Namespace: f.namespace, Name: fmt.Sprintf("till-%03d", many-1)}
	if err := cluster.Client.Get(t.Context(), name, last); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&last.Status.Conditions, metav1.Condition{Type: v1alpha1.KeyLostCondition, Status: metav1.ConditionTrue, Reason: "KeyReplaced"})
	if err := cluster.Client.Status().Update(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	await.Until(t, patience, "the console knows that a key was lost", func() bool {
		var key v1alpha1.ApiKey
		return f.objects.Cache.Get(t.Context(), name, &key) == nil && len(key.Status.Conditions) > 0
	})
	f.keysRead.Store(0)
	page := f.signedIn(alice).Get(t, f.URL+"/merchants/"+f.namespace+"/coffee")
	for text, want := range map[string]bool{"key-till-000": true, "key-" + last.Name: true, "key-till-201": false, "3 more keys are not shown": true} {
		if strings.Contains(page.Text, text) != want {
			t.Errorf("%q is on the page: %v", text, !want)
		}
	}
	if read := f.keysRead.Load(); read != keys.MaxShown {
		t.Errorf("%d reads of ApiKeys, want %d", read, keys.MaxShown)
	}
}

// Of the metadata a page says who manages a key, and keeps nothing else.
func TestListKeys_KeepsManager(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	merchant := f.merchant("coffee")
	key := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: "till", Annotations: map[string]string{"argocd.argoproj.io/tracking-id": "shop:x", "theirs": "x"},
		},
		Spec: v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "coffee"}},
	}
	f.create(key)
	list, err := f.keys.List(t.Context(), merchant)
	rows := list.Rows
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d keys (%v), want one", len(rows), err)
	}
	want := metav1.ObjectMeta{Namespace: f.namespace, Name: "till", UID: key.UID, CreationTimestamp: key.CreationTimestamp}
	if diff := cmp.Diff(want, rows[0].ObjectMeta); diff != "" || rows[0].Status.Conditions != nil {
		t.Errorf("kept of the metadata (-want +got):\n%s", diff)
	}
	if rows[0].Manager != (gitops.Manager{Tool: "Argo CD", Source: "application shop"}) {
		t.Errorf("managed by %+v", rows[0].Manager)
	}
}

// A line says what ends when, and its details what the key may do and from where.
func TestMerchantPage_KeyDetails(t *testing.T) {
	t.Parallel()
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
