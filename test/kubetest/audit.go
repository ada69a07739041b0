package kubetest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// What an AuditLog has: all requests, a deletion with its options; or those that write, without reviews of tokens and rights, which
// are stored nowhere.
const (
	AuditRequests = "- {level: Request, verbs: [delete]}\n- {level: Metadata}\n"
	AuditWrites   = "- {level: None, verbs: [get, list, watch]}\n" +
		"- {level: None, nonResourceURLs: [\"*\"]}\n" +
		"- {level: None, resources: [{group: authentication.k8s.io}, {group: authorization.k8s.io}]}\n" + AuditRequests
)

// AuditLog is what a kube-apiserver records of the requests it answers.
type AuditLog struct {
	path, policy string
	offset       int64 // of what was not returned yet
}

// Request is one that was answered.
type Request struct {
	User, UserAgent, Verb, Group, Resource, Subresource, Namespace, Name string

	DryRun bool
	Code   int // of the answer
}

// NewAuditLog keeps the log in a directory, which has to exist as long as the kube-apiserver runs.
func NewAuditLog(directory, rules string) (*AuditLog, error) {
	log := &AuditLog{path: filepath.Join(directory, "audit.log"), policy: filepath.Join(directory, "audit-policy.yaml")}
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules:\n" + rules
	return log, os.WriteFile(log.policy, []byte(policy), 0o600)
}

// Record has an environment that is not started yet write the log.
func (a *AuditLog) Record(environment *envtest.Environment) {
	environment.ControlPlane.GetAPIServer().Configure().
		Set("audit-policy-file", a.policy).Set("audit-log-path", a.path).Set("audit-log-mode", "blocking")
}

// Requests returns those that were answered since the last call.
func (a *AuditLog) Requests() (requests []Request, err error) {
	file, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // the next call has what is no complete line yet
			return requests, nil
		}
		if err != nil {
			return nil, err
		}
		a.offset += int64(len(line))
		request, err := parseAuditEvent(line)
		if err != nil {
			return nil, fmt.Errorf("audit log: %w: %s", err, line)
		}
		requests = append(requests, request)
	}
}

func parseAuditEvent(line []byte) (Request, error) {
	var event struct {
		Verb       string `json:"verb"`
		RequestURI string `json:"requestURI"`
		UserAgent  string `json:"userAgent"`
		User       struct {
			Username string `json:"username"`
		} `json:"user"`
		Object struct {
			APIGroup    string `json:"apiGroup"`
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
			Namespace   string `json:"namespace"`
			Name        string `json:"name"`
		} `json:"objectRef"`
		Options struct {
			DryRun []string `json:"dryRun"`
		} `json:"requestObject"` // of a deletion
		Status struct {
			Code int `json:"code"`
		} `json:"responseStatus"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return Request{}, err
	}
	address, err := url.ParseRequestURI(event.RequestURI)
	object := event.Object
	return Request{
		User: event.User.Username, UserAgent: event.UserAgent, Verb: event.Verb,
		Group: object.APIGroup, Resource: object.Resource, Subresource: object.Subresource, Namespace: object.Namespace, Name: object.Name,
		DryRun: address != nil && address.Query().Has("dryRun") || len(event.Options.DryRun) > 0, Code: event.Status.Code,
	}, err
}
