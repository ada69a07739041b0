package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// stand is what runs while it is measured: a Kubernetes API, and clients of it without limits.
type stand struct {
	settings settings
	out      io.Writer // progress, for people

	directory, kubeconfig string
	log                   *os.File

	// typed speaks protobuf to the built-in kinds and plain JSON, as the operator's recorder does of events; objects is for ours.
	typed   *kubernetes.Clientset
	plain   *kubernetes.Clientset
	objects *rest.RESTClient

	closers []func() error
}

func newStand(ctx context.Context, settings settings, out io.Writer) (s *stand, err error) {
	s = &stand{settings: settings, out: out}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.directory, err = os.MkdirTemp("", "bench-operator"); err != nil {
		return s, err
	}
	s.onStop(func() error { return os.RemoveAll(s.directory) })
	if s.log, err = os.Create(filepath.Join(filepath.Dir(settings.output), "bench-operator.log")); err != nil {
		return s, err
	}
	s.onStop(s.log.Close)
	cluster, stopCluster, err := kubetest.New()
	if err != nil {
		return s, err
	}
	s.onStop(stopCluster)
	s.kubeconfig = filepath.Join(s.directory, "kubeconfig")
	if err := os.WriteFile(s.kubeconfig, cluster.KubeConfig, 0o600); err != nil {
		return s, err
	}
	if err := s.connect(cluster.Config); err != nil {
		return s, err
	}
	for _, c := range []contestant{operatorContestant, floorContestant} {
		for _, name := range []string{c.tenant(), c.credentials()} {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := s.typed.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
				return s, fmt.Errorf("create namespace %s: %w", name, err)
			}
		}
	}
	return s, nil
}

// connect makes the clients. None limits itself: neither does the operator.
func (s *stand) connect(config *rest.Config) (err error) {
	plain := rest.CopyConfig(config)
	plain.QPS = -1
	if s.plain, err = kubernetes.NewForConfig(plain); err != nil {
		return err
	}
	typed := rest.CopyConfig(plain)
	typed.ContentType, typed.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if s.typed, err = kubernetes.NewForConfig(typed); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	objects := rest.CopyConfig(plain)
	objects.GroupVersion, objects.APIPath = &v1alpha1.SchemeGroupVersion, "/apis"
	objects.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	s.objects, err = rest.RESTClientFor(objects)
	return err
}

// onStop has do done when the stand stops, the last first.
func (s *stand) onStop(do func() error) { s.closers = append(s.closers, do) }

func (s *stand) stop() error {
	var errs []error
	for _, closer := range slices.Backward(s.closers) {
		errs = append(errs, closer())
	}
	s.closers = nil
	return errors.Join(errs...)
}

func (s *stand) say(format string, args ...any) { fmt.Fprintf(s.out, "==> "+format+"\n", args...) }
