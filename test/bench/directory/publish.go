package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writers are how many write at a time; more are no faster on two processors.
const writers = 16

// publishAll creates both populations, and says now and then how far it is.
func (s *stand) publishAll(ctx context.Context, out io.Writer) error {
	var done atomic.Int64
	told, enough := context.WithCancel(ctx)
	defer enough()
	go func() {
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-told.Done():
				return
			case <-ticker.C:
				fmt.Fprintf(out, "    %d are\n", done.Load())
			}
		}
	}()
	for _, p := range []*population{s.few, s.many} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
		if _, err := s.kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := each(ctx, p.merchants, func(ctx context.Context, i int) error {
			configMap, err := p.merchant(i)
			if err != nil {
				return err
			}
			_, err = s.kube.CoreV1().ConfigMaps(p.namespace).Create(ctx, configMap, metav1.CreateOptions{})
			return err
		}); err != nil {
			return fmt.Errorf("publish the merchants: %w", err)
		}
		if err := each(ctx, len(p.keys), func(ctx context.Context, i int) error {
			secret, err := p.issue(i, 1)
			if err != nil {
				return err
			}
			_, err = s.kube.CoreV1().Secrets(p.namespace).Create(ctx, secret, metav1.CreateOptions{})
			done.Add(1)
			return err
		}); err != nil {
			return fmt.Errorf("publish the keys: %w", err)
		}
	}
	return nil
}

// rotate puts new keys in force instead of the first n.
func (s *stand) rotate(ctx context.Context, p *population, n int, generation int64) error {
	return each(ctx, n, func(ctx context.Context, i int) error {
		secret, err := p.issue(i, generation)
		if err != nil {
			return err
		}
		_, err = s.kube.CoreV1().Secrets(p.namespace).Update(ctx, secret, metav1.UpdateOptions{})
		return err
	})
}

// each does something n times, several at a time.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	workers, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range writers {
		workers.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return workers.Wait()
}
