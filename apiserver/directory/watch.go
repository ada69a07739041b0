package directory

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Watch takes the published objects of the credentials namespace in, and every change of them, until
// ctx ends. While the Kubernetes API is away it keeps trying. The client is one of the core API
// group. One Watch at a time.
func (d *Directory) Watch(ctx context.Context, client cache.Getter, credentialsNamespace string) {
	labelled := func(resource, label string) *cache.ListWatch {
		return cache.NewFilteredListWatchFromClient(client, resource, credentialsNamespace,
			func(options *metav1.ListOptions) { options.LabelSelector = published.Label + "=" + label })
	}
	var reflectors sync.WaitGroup
	reflectors.Go(func() { reflect(ctx, labelled("secrets", published.LabelKey), &corev1.Secret{}, d.keyFeed) })
	reflectors.Go(func() {
		reflect(ctx, labelled("configmaps", published.LabelMerchant), &corev1.ConfigMap{}, d.merchantFeed)
	})
	reflectors.Wait()
}

// reflect keeps a feed current until ctx ends.
func reflect(ctx context.Context, source cache.ListerWatcher, object runtime.Object, into *feed) {
	reflector := cache.NewReflectorWithOptions(source, object, into, cache.ReflectorOptions{
		Name: "directory",
		// Gentle to a struggling API server, yet current within seconds of its return.
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 6, Cap: 10 * time.Second},
	})
	// client-go finds its logger in the context.
	reflector.RunWithContext(klog.NewContext(ctx, logr.FromSlogHandler(into.log.Handler())))
}
