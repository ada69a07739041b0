package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const (
	credentials = "merchant-operator-credentials"
	tenants     = "shops"
	patience    = 30 * time.Minute
)

// measureRoles runs one of each role over a number of Merchants, each with an ApiKey and a webhook.
func measureRoles(ctx context.Context, count int) (err error) {
	directory, err := os.MkdirTemp("", "sizing")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	environment, stopCluster, err := kubetest.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopCluster()) }()
	redis, stopRedis, err := redistest.New() //nolint:contextcheck // it is stopped below, whatever becomes of the context
	if err != nil {
		return err
	}
	defer stopRedis()
	kubeconfig := filepath.Join(directory, "kubeconfig")
	if err := os.WriteFile(kubeconfig, environment.KubeConfig, 0o600); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	environment.Config.QPS = -1
	kube, err := client.New(environment.Config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	for _, name := range []string{credentials, tenants} {
		if err := kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}

	all, stopRoles, err := startRoles(ctx, directory, kubeconfig, redis.URL())
	if err != nil {
		return err
	}
	defer stopRoles()
	return fill(ctx, all, kube, environment.Config, count)
}

// fill applies the Merchants and says what became of the memory of each role, and of etcd.
func fill(ctx context.Context, all []role, kube client.Client, config *rest.Config, count int) error {
	idle, err := settle(ctx, all)
	if err != nil {
		return err
	}
	empty, err := storageSize(ctx, config)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := apply(ctx, kube, count); err != nil {
		return err
	}
	if err := ready(ctx, kube, count); err != nil {
		return err
	}
	took := time.Since(started)
	full, err := settle(ctx, all)
	if err != nil {
		return err
	}
	stored, err := storageSize(ctx, config)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d Merchants, each with an ApiKey and a webhook, were ready in %s. Resident memory of each role:\n", count, took.Round(time.Second))
	for i, role := range all {
		_, most, err := resident(role.pid())
		if err != nil {
			return err
		}
		fmt.Printf("  %-10s  %4d MiB idle, %4d MiB with all, %4d MiB at most; %5.1f KiB a merchant\n", role.name,
			idle[i]>>20, full[i]>>20, most>>20, float64(full[i]-idle[i])/float64(count)/1024)
	}
	fmt.Printf("  %-10s  %4d MiB with all, %5.1f KiB a merchant\n", "etcd", (stored-empty)>>20, float64(stored-empty)/float64(count)/1024)
	return nil
}

type role struct {
	name    string
	command *exec.Cmd
}

func (r role) pid() int { return r.command.Process.Pid }

func startRoles(ctx context.Context, directory, kubeconfig, redisURL string) (all []role, stop func(), err error) {
	log, err := os.Create(filepath.Join(directory, "roles.log"))
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		for _, r := range all {
			_ = r.command.Process.Kill()
			_ = r.command.Wait()
		}
		_ = log.Close()
	}
	for _, args := range [][]string{
		{"operator", "--leader-elect=false", "--ops-address", "127.0.0.1:0"},
		{"apiserver", "--public-address", "127.0.0.1:0", "--internal-address", "127.0.0.1:0", "--ops-address", "127.0.0.1:0"},
		{"dispatcher", "--ops-address", "127.0.0.1:0"},
	} {
		r := role{args[0], exec.CommandContext(ctx, "bin/merchant-operator", append(args, "--kubeconfig", kubeconfig)...)}
		r.command.Env = append(os.Environ(), "REDIS_URL="+redisURL)
		r.command.Stdout, r.command.Stderr = log, log
		if err := r.command.Start(); err != nil {
			stop()
			return nil, nil, fmt.Errorf("start %s (is it built?): %w", r.name, err)
		}
		all = append(all, r)
	}
	return all, stop, nil
}

// settle returns the resident memory of each role once it has stopped changing: garbage collected, and given back. On a
// machine so busy that it never does, it is what it was in the end.
func settle(ctx context.Context, all []role) ([]int, error) {
	last, calm := make([]int, len(all)), 0
	err := wait.PollUntilContextTimeout(ctx, 5*time.Second, 10*time.Minute, true, func(context.Context) (bool, error) {
		steady := true
		for i, role := range all {
			now, _, err := resident(role.pid())
			if err != nil {
				return false, fmt.Errorf("the %s has ended: %w", role.name, err)
			}
			if difference := now - last[i]; difference > now/25 || -difference > now/25 {
				steady = false
			}
			last[i] = now
		}
		calm++
		if !steady {
			calm = 0
		}
		// Longer than the two minutes in which Go collects garbage even where nothing happens.
		return calm >= 30, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = nil
	}
	return last, err
}

func apply(ctx context.Context, kube client.Client, count int) error {
	return each(ctx, count, func(ctx context.Context, i int) error {
		object := metav1.ObjectMeta{Name: "merchant-" + strconv.Itoa(i), Namespace: tenants}
		return errors.Join(
			kube.Create(ctx, &v1alpha1.Merchant{ObjectMeta: object, Spec: v1alpha1.MerchantSpec{
				DisplayName: "Merchant " + strconv.Itoa(i),
				IPAllowlist: []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/48"},
				Webhook:     &v1alpha1.Webhook{URL: "https://shop.example/hooks/" + strconv.Itoa(i)},
			}}),
			kube.Create(ctx, &v1alpha1.ApiKey{ObjectMeta: object, Spec: v1alpha1.ApiKeySpec{
				MerchantRef: v1alpha1.MerchantReference{Name: object.Name},
				Delivery:    &v1alpha1.Delivery{SecretName: object.Name + "-key"},
			}}),
		)
	})
}

// ready waits until as many ApiKeys are ready, and with them their Merchants.
func ready(ctx context.Context, kube client.Client, count int) error {
	return wait.PollUntilContextTimeout(ctx, 5*time.Second, patience, true, func(ctx context.Context) (bool, error) {
		var keys v1alpha1.ApiKeyList
		if err := kube.List(ctx, &keys, client.InNamespace(tenants)); err != nil {
			return false, err
		}
		n := 0
		for _, key := range keys.Items {
			if meta.IsStatusConditionTrue(key.Status.Conditions, "Ready") {
				n++
			}
		}
		return n == count, nil
	})
}
