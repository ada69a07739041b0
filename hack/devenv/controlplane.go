package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startControlPlane starts etcd and kube-apiserver with the project's CRDs installed.
func (e *environment) startControlPlane(_ context.Context) error {
	var logs [2]*os.File
	for i, name := range []string{"etcd", "kube-apiserver"} {
		log, err := os.Create(filepath.Join(e.programs.logs, name+".log"))
		if err != nil {
			return fmt.Errorf("make a log file: %w", err)
		}
		logs[i] = log
	}
	e.onStop("close logs", func() error { return errors.Join(logs[0].Close(), logs[1].Close()) })

	// Whatever USE_EXISTING_CLUSTER says: this is not for somebody's real cluster.
	ownCluster := false
	e.cluster = &envtest.Environment{
		UseExistingCluster:       &ownCluster,
		BinaryAssetsDirectory:    e.assets,
		CRDDirectoryPaths:        []string{filepath.Join(e.root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: time.Minute,
		ControlPlaneStopTimeout:  patienceToStop,
	}
	e.cluster.ControlPlane.Etcd = &envtest.Etcd{Out: logs[0], Err: logs[0]}
	server := e.cluster.ControlPlane.GetAPIServer()
	server.Out, server.Err = logs[1], logs[1]

	e.onStop("Kubernetes API", e.cluster.Stop) // also when it came up by half
	if _, err := e.cluster.Start(); err != nil {
		return fmt.Errorf("%w; the end of its log:\n%s", err, tail(logs[1].Name()))
	}
	return nil
}

// watchControlPlane ends the environment when the Kubernetes API has not answered for some seconds: envtest does
// not say when one of its processes ends.
func (e *environment) watchControlPlane(ctx context.Context) error {
	client, err := rest.HTTPClientFor(e.cluster.Config)
	if err != nil {
		return fmt.Errorf("make a client for the Kubernetes API: %w", err)
	}
	client.Timeout = 2 * time.Second
	go func() {
		ticker := time.NewTicker(2 * time.Second)
		defer ticker.Stop()
		var err error
		for failures := 0; failures < 5; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err = answers(ctx, client, serverURL(e.cluster.Config)+"/livez"); err == nil {
				failures = 0
			} else {
				failures++
			}
		}
		e.programs.fail(fmt.Errorf("the Kubernetes API has stopped answering; see .dev/logs/kube-apiserver.log and etcd.log: %w", err))
	}()
	return nil
}

// serverURL is the Kubernetes API's, without the slash that envtest leaves at its end.
func serverURL(config *rest.Config) string { return strings.TrimSuffix(config.Host, "/") }

// answers is nil when a GET of url is answered with 200.
func answers(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return nil
}
