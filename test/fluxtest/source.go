package fluxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// Source stands in for source-controller: it serves the branch main of a Git repository as an archive, and reports it in the status
// of each GitRepository, whatever the URL of that.
type Source struct {
	// Remote is the directory of the bare Git repository to push to.
	Remote string

	kube   client.Client
	server *httptest.Server
	stop   func()

	mu       sync.Mutex
	archives map[string][]byte // by commit
	failure  error
}

var gitRepositories = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepositoryList"}

// interval is between two looks at the repository, in place of the minute that a GitRepository usually has.
const interval = 200 * time.Millisecond

func startSource(cluster *kubetest.Cluster) (*Source, error) {
	s := &Source{Remote: filepath.Join(cluster.Dir, "platform.git"), kube: cluster.Client, archives: map[string][]byte{}}
	if output, err := exec.Command("git", "init", "--quiet", "--bare", "--initial-branch=main", s.Remote).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("git init: %w\n%s", err, output)
	}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx)
	}()
	s.stop = func() {
		cancel()
		<-ended
		s.server.Close()
	}
	return s, nil
}

// run reports each push.
func (s *Source) run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := s.report(ctx)
		s.mu.Lock()
		s.failure = err
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Source) report(ctx context.Context) error {
	commit, err := s.commit()
	if err != nil || commit == "" {
		return err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gitRepositories)
	if err := s.kube.List(ctx, list); err != nil {
		return err
	}
	for _, repository := range list.Items {
		reported, _, _ := unstructured.NestedString(repository.Object, "status", "artifact", "revision")
		if reported == revision(commit) {
			continue
		}
		archive, err := s.archive(commit)
		if err != nil {
			return err
		}
		now := metav1.Now().UTC().Format(time.RFC3339)
		repository.Object["status"] = map[string]any{
			"observedGeneration": repository.GetGeneration(),
			"artifact": map[string]any{
				"digest": fmt.Sprintf("sha256:%x", sha256.Sum256(archive)), "lastUpdateTime": now, "path": commit + ".tar.gz",
				"revision": revision(commit), "size": int64(len(archive)), "url": s.server.URL + "/" + commit + ".tar.gz",
			},
			"conditions": []any{map[string]any{
				"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact for revision " + revision(commit),
				"lastTransitionTime": now, "observedGeneration": repository.GetGeneration(),
			}},
		}
		if err := s.kube.Status().Update(ctx, &repository); err != nil {
			return err
		}
	}
	return nil
}

// head returns the revision that was pushed last, as Flux writes it.
func (s *Source) head() (name string, err error) {
	s.mu.Lock()
	err = s.failure
	s.mu.Unlock()
	if err != nil {
		return "", fmt.Errorf("report the repository: %w", err)
	}
	commit, err := s.commit()
	return revision(commit), err
}

// commit returns the last one of main; empty: there is none yet.
func (s *Source) commit() (string, error) {
	content, err := os.ReadFile(filepath.Join(s.Remote, "refs", "heads", "main"))
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	return strings.TrimSpace(string(content)), nil
}

func revision(commit string) string { return "main@sha1:" + commit }

// archive returns the files of a commit. The tree is asked for: the archive of a commit has a header that Flux refuses.
func (s *Source) archive(commit string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if archive := s.archives[commit]; archive != nil {
		return archive, nil
	}
	var archive, problems bytes.Buffer
	git := exec.Command("git", "--git-dir", s.Remote, "archive", "--format=tar.gz", commit+"^{tree}")
	git.Stdout, git.Stderr = &archive, &problems
	if err := git.Run(); err != nil {
		return nil, fmt.Errorf("git archive: %w\n%s", err, &problems)
	}
	s.archives[commit] = archive.Bytes()
	return archive.Bytes(), nil
}

func (s *Source) serve(w http.ResponseWriter, r *http.Request) {
	commit := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/"), ".tar.gz")
	s.mu.Lock()
	archive := s.archives[commit]
	s.mu.Unlock()
	if archive == nil {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(archive)
}
