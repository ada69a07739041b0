package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// However many objects there are, only one page of them is in memory as it was read. Pages whose bytes are not counted stay short.
func TestListInPages(t *testing.T) {
	const objects = 2*firstPage + 3
	asRead := 0 // objects that were listed and not transformed yet
	list := func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.Limit != firstPage || options.ResourceVersion != "" {
			t.Errorf("asked for %d objects of version %q; an API server takes a limit for the latest version only", options.Limit, options.ResourceVersion)
		}
		if asRead != 0 {
			t.Errorf("asked for another page with %d objects in memory as they were read", asRead)
		}
		first, _ := strconv.Atoi(options.Continue)
		page := &v1alpha1.ApiKeyList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		for i := first; i < min(first+firstPage, objects); i++ {
			page.Items = append(page.Items, v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), Finalizers: []string{"theirs"}}})
		}
		asRead = len(page.Items)
		if first+firstPage < objects {
			page.Continue = strconv.Itoa(first + firstPage)
		}
		return page, nil
	}
	transform := func(object any) (any, error) {
		apiKey := object.(*v1alpha1.ApiKey)
		apiKey.Finalizers = nil
		asRead--
		return apiKey, nil
	}
	got, err := listInPages(t.Context(), list, transform, metav1.ListOptions{ResourceVersion: "0", Limit: 500}, maxPageBytes)
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

// testPageBytes is large enough for 500 small objects.
const testPageBytes = 1 << 20

// pagesServer is an API server with ConfigMaps of these sizes in bytes. Like a real one it answers with all objects of a page, however
// large.
type pagesServer struct {
	sizes []int
	// expired are the requests, counted from 0, whose version the server has forgotten.
	expired []int

	asked []int // the limit of each request
}

func (s *pagesServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	first, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	request := len(s.asked)
	s.asked = append(s.asked, limit)
	w.Header().Set("Content-Type", "application/json")
	if slices.Contains(s.expired, request) {
		w.WriteHeader(http.StatusGone)
		status := apierrors.NewResourceExpired("the continue token is too old").ErrStatus
		status.Kind, status.APIVersion = "Status", "v1"
		if err := json.NewEncoder(w).Encode(status); err != nil {
			panic(err)
		}
		return
	}
	last := min(first+limit, len(s.sizes))
	next := ""
	if last < len(s.sizes) {
		next = strconv.Itoa(last)
	}
	_, _ = fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":%q},"items":[`, next)
	for i := first; i < last; i++ {
		comma := ","
		if i == first {
			comma = ""
		}
		_, err := fmt.Fprintf(w, `%s{"metadata":{"name":"%d"},"data":{"text":"%s"}}`, comma, i, strings.Repeat("x", s.sizes[i]))
		if err != nil {
			return // the client has read enough
		}
	}
	_, _ = w.Write([]byte("]}"))
}

// list returns the names of all ConfigMaps, as an informer lists them.
func (s *pagesServer) list(t *testing.T) ([]string, error) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	boundPages(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	got, err := listInPages(t.Context(), func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().ConfigMaps("").List(ctx, options)
	}, func(object any) (any, error) {
		configMap, _ := object.(*corev1.ConfigMap)
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMap.Name}}, nil
	}, metav1.ListOptions{}, testPageBytes)
	if err != nil {
		return nil, err
	}
	list, _ := got.(*corev1.ConfigMapList)
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return names, nil
}

// Small objects are listed in few requests. Large ones between them make the pages short; nothing larger is read.
func TestListInPages_Sizes(t *testing.T) {
	const small, large = 100, testPageBytes / 32
	for name, test := range map[string]struct {
		sizes []int
		want  []int // the limits that are asked for
	}{
		"none":      {nil, []int{20}},
		"small":     {slices.Repeat([]int{small}, 2000), []int{20, 40, 80, 160, 320, 640, 1280}},
		"all large": {slices.Repeat([]int{large}, 50), []int{20, 20, 20}},
		"large ones behind small ones": {
			slices.Concat(slices.Repeat([]int{small}, 300), slices.Repeat([]int{large}, 100)),
			// 320 and 80 are too large.
			[]int{20, 40, 80, 160, 320, 80, 20, 20, 20, 20, 20},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &pagesServer{sizes: test.sizes}
			names, err := s.list(t)
			if err != nil || len(names) != len(test.sizes) {
				t.Fatalf("%d objects, %v; want %d", len(names), err, len(test.sizes))
			}
			for i, name := range names {
				if name != strconv.Itoa(i) {
					t.Fatalf("object %d is %s", i, name)
				}
			}
			if !slices.Equal(s.asked, test.want) {
				t.Errorf("asked for %v, want %v", s.asked, test.want)
			}
		})
	}
}

// A list that takes longer than the API server remembers its version is whole all the same, and of one version.
func TestListInPages_Expired(t *testing.T) {
	s := &pagesServer{sizes: slices.Repeat([]int{100}, 400), expired: []int{2, 5}}
	names, err := s.list(t)
	slices.Sort(names)
	if err != nil || len(names) != 400 || len(slices.Compact(names)) != 400 {
		t.Errorf("%d objects, %v; asked for %v", len(names), err, s.asked)
	}
	s = &pagesServer{sizes: slices.Repeat([]int{100}, 400), expired: []int{1, 3, 5, 7, 9, 11, 13}}
	if _, err := s.list(t); !apierrors.IsResourceExpired(err) {
		t.Errorf("a version that always expires: %v, want the error, for the reflector to wait", err)
	}
}

// An informer lists from a real API server, which would send each object as an event of its own if it was asked to.
func TestPagedInformers(t *testing.T) {
	config := rest.CopyConfig(kubetest.Start(t).Config)
	boundPages(config)
	var mu sync.Mutex
	var limits []string
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			switch query := r.URL.Query(); {
			case query.Has("sendInitialEvents"):
				t.Errorf("the informer watches its list: %s", r.URL)
			case r.Method == http.MethodGet && !query.Has("watch"):
				limits = append(limits, query.Get("limit"))
			}
			return next.RoundTrip(r)
		})
	})
	client, err := Client(config)
	if err != nil {
		t.Fatal(err)
	}
	const objects = firstPage + 5
	maps := client.CoreV1().ConfigMaps("default")
	for i := range objects {
		named := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}, Data: map[string]string{"theirs": "x"}}
		if _, err := maps.Create(t.Context(), named, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	source := cache.NewFilteredListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", "default", func(*metav1.ListOptions) {})
	informer := PagedInformers(func(object any) (any, error) {
		object.(*corev1.ConfigMap).Data = nil
		return object, nil
	})(source, &corev1.ConfigMap{}, 0, nil)
	go informer.RunWithContext(t.Context())
	await.Until(t, time.Minute, "the list is read", informer.HasSynced)
	for i := range objects {
		got, found, err := informer.GetStore().GetByKey(fmt.Sprintf("default/n%d", i))
		if err != nil || !found || got.(*corev1.ConfigMap).Data != nil {
			t.Errorf("object %d: %v, %v", i, got, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"20", "40"}; !slices.Equal(limits, want) {
		t.Errorf("lists of %v objects, want %v", limits, want)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
