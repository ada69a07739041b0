package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// measureFloors fills the store of client-go that an informer keeps its objects in, with as many Secrets as there are keys: as they come, and
// stripped by a transform of all that can be missed (name, namespace and version are what informers live by) but 32 bytes
// of a digest. An index beside it would come on top.
func (s *stand) measureFloors(ctx context.Context, results *results) error {
	secret, err := s.kube.CoreV1().Secrets(s.few.namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if len(secret.Items) == 0 {
		return fmt.Errorf("no Secret in the namespace %s", s.few.namespace)
	}
	wire, err := secret.Items[0].Marshal()
	if err != nil {
		return err
	}
	whole := func(i int) (*corev1.Secret, error) {
		read := &corev1.Secret{}
		err := read.Unmarshal(wire)
		read.Name, read.UID = fmt.Sprintf("key-%012d", i), types.UID(fmt.Sprintf("%036d", i))
		return read, err
	}
	if results.InformerBytes, err = bytesPerObject(s.settings.keys, whole); err != nil {
		return err
	}
	const digest = 32
	results.TransformBytes, err = bytesPerObject(s.settings.keys, func(i int) (*corev1.Secret, error) {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("key-%012d", i), Namespace: s.many.namespace, ResourceVersion: strconv.Itoa(1_000_000 + i),
			},
			Data: map[string][]byte{"digest": make([]byte, digest)},
		}, nil
	})
	return err
}

// bytesPerObject is what n objects take in a store, each.
func bytesPerObject(n int, object func(i int) (*corev1.Secret, error)) (float64, error) {
	before := alive()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for i := range n {
		made, err := object(i)
		if err != nil {
			return 0, err
		}
		if err := store.Add(made); err != nil {
			return 0, err
		}
	}
	after := alive()
	runtime.KeepAlive(store)
	return (after - before) / float64(n), nil
}

func alive() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
