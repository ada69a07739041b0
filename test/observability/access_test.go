package observability

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// applyAccess installs namespaces, service accounts and roles as a platform team would.
func (p *product) applyAccess() error {
	kubeconfig := filepath.Join(p.dir, "admin.kubeconfig")
	if err := os.WriteFile(kubeconfig, p.environment.KubeConfig, 0o600); err != nil {
		return err
	}
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	for _, what := range [][]string{{"-k", repository.Path("config", "rbac")}, {"-f", repository.Path("config", "prometheus", "rbac.yaml")}} {
		arguments := append([]string{"--kubeconfig", kubeconfig, "apply", "--server-side"}, what...)
		if output, err := exec.Command(kubectl, arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("apply %s: %w\n%s", what[1], err, output)
		}
	}
	return p.admitPrometheus()
}

// admitPrometheus makes the account that config/prometheus/rbac.yaml binds, and keeps a token of it.
func (p *product) admitPrometheus() error {
	ctx := context.Background()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "prometheus-k8s"}}
	for _, object := range []client.Object{namespace, account} {
		if err := p.kube.Create(ctx, object); err != nil {
			return err
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := p.kube.SubResource("token").Create(ctx, account, request); err != nil {
		return err
	}
	p.token = request.Status.Token
	p.secrets = append(p.secrets, p.token)
	return nil
}

// kubeconfigOf writes a file with which a role signs in, so that it has its own rights and no more.
func (p *product) kubeconfigOf(account string) (path string, err error) {
	user, err := p.environment.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + systemNamespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace, "system:authenticated"},
	}, nil)
	if err != nil {
		return "", err
	}
	content, err := user.KubeConfig()
	if err != nil {
		return "", err
	}
	path = filepath.Join(p.dir, account+".kubeconfig")
	return path, os.WriteFile(path, content, 0o600)
}

// insecure takes any certificate, as a scraper must that takes self-made ones.
var insecure = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// get asks the ops port of a role; an empty token is none.
func (p *product) get(ctx context.Context, role, path, token string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ops[role]+path, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := insecure.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}
