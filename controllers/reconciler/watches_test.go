package reconciler

import (
	"context"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/test/await"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestChanges(t *testing.T) {
	matters := Changes(func(o client.Object) []metav1.Condition { return o.(*v1alpha1.Merchant).Status.Conditions })
	for desc, tc := range map[string]struct {
		edit func(*v1alpha1.Merchant)
		want bool
	}{
		"the spec":        {func(m *v1alpha1.Merchant) { m.Generation++ }, true},
		"a label":         {func(m *v1alpha1.Merchant) { m.Labels = map[string]string{"a": "b"} }, false},
		"an annotation":   {func(m *v1alpha1.Merchant) { m.Annotations = map[string]string{"a": "b"} }, false},
		"our finalizer":   {func(m *v1alpha1.Merchant) { m.Finalizers = nil }, true},
		"another's":       {func(m *v1alpha1.Merchant) { m.Finalizers = append(m.Finalizers, "example.com/theirs") }, false},
		"another object":  {func(m *v1alpha1.Merchant) { m.UID = "2" }, true},
		"a lost status":   {func(m *v1alpha1.Merchant) { m.Status = v1alpha1.MerchantStatus{} }, true},
		"our own status":  {func(m *v1alpha1.Merchant) { m.Status.Conditions[0].Message = "b"; m.ResourceVersion = "2" }, false},
		"a mere resync":   {func(*v1alpha1.Merchant) {}, false},
		"who wrote which": {func(m *v1alpha1.Merchant) { m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}} }, false},
	} {
		t.Run(desc, func(t *testing.T) {
			before := &v1alpha1.Merchant{
				ObjectMeta: metav1.ObjectMeta{UID: "1", Generation: 1, ResourceVersion: "1", Finalizers: []string{v1alpha1.Finalizer}},
				Status:     v1alpha1.MerchantStatus{Conditions: conditions.After(nil, conditions.Ready("a").Notices(), 1, start)},
			}
			after := before.DeepCopy()
			tc.edit(after)
			if got := matters.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("passes: %t, want %t", got, tc.want)
			}
		})
	}
}

// One tenant's Merchant with thousands of ApiKeys must not make another's ApiKey wait.
func TestEnqueueMapped(t *testing.T) {
	const other = "other"
	merchant := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
	changed := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2"}}
	for desc, tc := range map[string]struct {
		apiKeys   int
		event     any
		wantFirst string
	}{
		"many ApiKeys of a changed Merchant": {fewRequests + 1, event.UpdateEvent{ObjectOld: merchant, ObjectNew: changed}, other},
		"many of a new one":                  {fewRequests + 1, event.CreateEvent{Object: merchant}, other},
		"many of a deleted one":              {fewRequests + 1, event.DeleteEvent{Object: merchant}, other},
		"few of a changed one":               {fewRequests, event.UpdateEvent{ObjectOld: merchant, ObjectNew: changed}, "till-0"},
		"few at the start":                   {1, event.CreateEvent{Object: merchant, IsInInitialList: true}, other},
		"few at a resync":                    {1, event.UpdateEvent{ObjectOld: merchant, ObjectNew: merchant}, other},
	} {
		t.Run(desc, func(t *testing.T) {
			queue := priorityqueue.New[reconcile.Request](t.Name())
			defer queue.ShutDown()
			handler := EnqueueMapped(func(context.Context, client.Object) (requests []reconcile.Request) {
				for i := range tc.apiKeys {
					requests = append(requests, request("till-"+strconv.Itoa(i)))
				}
				return requests
			})
			switch e := tc.event.(type) {
			case event.CreateEvent:
				handler.Create(t.Context(), e, queue)
			case event.UpdateEvent:
				handler.Update(t.Context(), e, queue)
			case event.DeleteEvent:
				handler.Delete(t.Context(), e, queue)
			}
			queue.Add(request(other))
			await.Until(t, time.Minute, "all requests are in the queue", func() bool { return queue.Len() > tc.apiKeys })
			if first, _ := queue.Get(); first != request(tc.wantFirst) {
				t.Errorf("first is %s, want %s", first.Name, tc.wantFirst)
			}
		})
	}
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shops", Name: name}}
}

func TestVersions_Behind(t *testing.T) {
	for desc, tc := range map[string]struct {
		cached string
		uid    types.UID
		after  time.Duration
		want   bool
	}{
		"the cache has not got it":        {"9", "1", 0, true},
		"the cache has it":                {"10", "1", 0, false},
		"the cache has a later one":       {"11", "1", 0, false},
		"another object of the same name": {"9", "2", 0, false},
		"a database that was restored":    {"9", "1", waitForCache, false},
		"versions that have no order":     {"abc", "1", 0, false},
	} {
		t.Run(desc, func(t *testing.T) {
			var v versions
			v.wrote("1", "10", start)
			cached := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{UID: tc.uid, ResourceVersion: tc.cached}}
			for range 2 { // the same answer, however often it is asked
				if got := v.behind(cached, start.Add(tc.after)); got != tc.want {
					t.Errorf("behind: %t, want %t", got, tc.want)
				}
			}
		})
	}
}

// Objects that were deleted after a write are never seen again, and must not be remembered permanently.
func TestVersions_Forget(t *testing.T) {
	var v versions
	for i := range 10_000 {
		v.wrote(types.UID(strconv.Itoa(i)), "10", start)
	}
	v.wrote("last", "10", start.Add(waitForCache))
	if n := len(v.written); n != 1 {
		t.Errorf("%d objects are remembered, want the one that was written last", n)
	}
}
