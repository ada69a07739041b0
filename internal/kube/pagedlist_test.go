package kube

import (
	"context"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// However many objects there are, only one page of them is in memory as it was read.
func TestListInPages(t *testing.T) {
	const objects = 2*listPage + 3
	asRead := 0 // objects that were listed and not transformed yet
	list := func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.Limit != listPage || options.ResourceVersion != "" {
			t.Errorf("asked for %d objects of version %q; an API server takes a limit for the latest version only", options.Limit, options.ResourceVersion)
		}
		if asRead != 0 {
			t.Errorf("asked for another page with %d objects in memory as they were read", asRead)
		}
		first, _ := strconv.Atoi(options.Continue)
		page := &v1alpha1.ApiKeyList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		for i := first; i < min(first+listPage, objects); i++ {
			page.Items = append(page.Items, v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), Finalizers: []string{"theirs"}}})
		}
		asRead = len(page.Items)
		if first+listPage < objects {
			page.Continue = strconv.Itoa(first + listPage)
		}
		return page, nil
	}
	transform := func(object any) (any, error) {
		apiKey := object.(*v1alpha1.ApiKey)
		apiKey.Finalizers = nil
		asRead--
		return apiKey, nil
	}
	got, err := listInPages(t.Context(), list, transform, metav1.ListOptions{ResourceVersion: "0", Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	whole := got.(*v1alpha1.ApiKeyList)
	if len(whole.Items) != objects || whole.ResourceVersion != "7" || whole.Continue != "" {
		t.Fatalf("%d objects of version %q, and more at %q; want %d of version 7", len(whole.Items), whole.ResourceVersion, whole.Continue, objects)
	}
	for i, item := range whole.Items {
		if item.Name != strconv.Itoa(i) || item.Finalizers != nil {
			t.Fatalf("object %d is %s with finalizers %v", i, item.Name, item.Finalizers)
		}
	}
}
