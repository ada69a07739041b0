package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/keys"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// apiFlags are those of commands that call the payment session API, with a key of the merchant.
type apiFlags struct {
	url              string
	apiKey           string
	keyStdin, keyEnv bool
	mode             keys.ModeFlag
	// lists: the command also lists, for which the key needs that permission. It needs read in any case.
	lists bool
}

// needs are the permissions for what the command asks.
func (f *apiFlags) needs() []v1alpha1.Permission {
	if f.lists {
		return []v1alpha1.Permission{v1alpha1.PermissionRead, v1alpha1.PermissionList}
	}
	return []v1alpha1.Permission{v1alpha1.PermissionRead}
}

// missing are the permissions that the command needs and a key has not.
func (f *apiFlags) missing(key *v1alpha1.ApiKey) []v1alpha1.Permission {
	if key.Spec.Permissions == nil {
		return nil
	}
	return slices.DeleteFunc(f.needs(), func(p v1alpha1.Permission) bool { return slices.Contains(key.Spec.Permissions, p) })
}

func (f *apiFlags) add(cmd *cobra.Command, p *plugin) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "api-url", "", "address of the API, the one that tills use: https, or http on this machine and in this cluster (.svc); empty: $API_URL")
	flags.StringVar(&f.apiKey, "key", "", "name of the ApiKey whose key to use, from its Secret; empty: the first one of the merchant that works and has the permissions")
	_ = cmd.RegisterFlagCompletionFunc("key", func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) { // fails only for an unknown flag
		return p.access.CompleteKeys(cmd, nil, typed)
	})
	flags.BoolVar(&f.keyStdin, "key-stdin", false, "read the key from stdin, and ask no cluster")
	flags.BoolVar(&f.keyEnv, "key-env", false, "use the key in $API_KEY, and ask no cluster")
}

// addMode adds --mode, for what is apart in test mode.
func (f *apiFlags) addMode(cmd *cobra.Command) {
	f.mode = keys.ModeFlag(v1alpha1.ModeLive)
	cmd.Flags().Var(&f.mode, "mode", "Live, or Test: payments of test mode")
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"Live", "Test"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
}

// ownKey reports whether the caller brings the key, which then says whose payments and which mode.
func (f *apiFlags) ownKey() bool { return f.keyStdin || f.keyEnv }

// check refuses flags that contradict each other.
func (f *apiFlags) check(cmd *cobra.Command, merchant []string) error {
	switch {
	case f.keyStdin && f.keyEnv:
		return terminal.Usage("Leave out one of them.", "--key-stdin and --key-env are both given")
	case f.ownKey() && (len(merchant) > 0 || f.apiKey != "" || cmd.Flags().Changed("mode")):
		return terminal.Usage("Leave out MERCHANT, --key and --mode.", "the key itself says whose it is")
	case !f.ownKey() && len(merchant) == 0:
		return terminal.Usage("Name it, or bring a key with --key-stdin or --key-env.", "MERCHANT is missing")
	}
	return nil
}

// connect finds the key and asks the API whose it is. merchant is the name of a Merchant, or nothing with a key of the caller's own.
func (f *apiFlags) connect(cmd *cobra.Command, p *plugin, merchant []string) (*api, error) {
	ctx := cmd.Context()
	if err := f.check(cmd, merchant); err != nil {
		return nil, err
	}
	base, err := f.baseURL()
	if err != nil {
		return nil, err
	}
	a := &api{base: base, client: newAPIClient(), notify: func(message string) { fmt.Fprintln(p.ErrOut, message) }}
	wantID := ""
	if f.ownKey() {
		if a.key, err = f.readOwnKey(p); err != nil {
			return nil, err
		}
	} else {
		kube, err := p.access.Connect()
		if err != nil {
			return nil, err
		}
		object, err := kube.Merchant(ctx, merchant[0])
		if err != nil {
			return nil, err
		}
		wantID = published.PublicMerchantID(published.ID(object.UID))
		own, err := kube.MerchantKeys(ctx, object)
		if err != nil {
			return nil, err
		}
		a.keyNames = make(map[string]string, len(own))
		for i := range own {
			a.keyNames[published.ID(own[i].UID)] = own[i].Name
		}
		if a.key, a.readAgain, err = f.reveal(ctx, kube, object, own); err != nil {
			return nil, err
		}
	}
	if err := a.identify(ctx); err != nil {
		return nil, err
	}
	if wantID != "" && a.merchant.ID != wantID {
		return nil, terminal.Hinted("Is --api-url the API of this cluster?", "the API says that the key belongs to %s, but Merchant %s is %s", a.merchant.ID, merchant[0], wantID)
	}
	return a, nil
}

func (f *apiFlags) readOwnKey(p *plugin) (string, error) {
	if f.keyStdin {
		return terminal.ReadKey(p.In)
	}
	if key := os.Getenv("API_KEY"); key != "" {
		return key, nil
	}
	return "", terminal.Usage("Set API_KEY, or use --key-stdin.", "--key-env is given, and API_KEY is empty")
}

// reveal returns the key of an ApiKey of the merchant, and how to read it again after a rotation.
func (f *apiFlags) reveal(ctx context.Context, kube *cluster.Cluster, merchant *v1alpha1.Merchant, own []v1alpha1.ApiKey) (plaintext string, again func(context.Context) (string, error), err error) {
	key, err := f.choose(ctx, kube, merchant, own)
	if err != nil {
		return "", nil, err
	}
	again = func(ctx context.Context) (string, error) {
		current, err := kube.ApiKey(ctx, key.Name)
		if err != nil {
			return "", err
		}
		return keys.Reveal(ctx, kube, current)
	}
	plaintext, err = keys.Reveal(ctx, kube, key)
	return plaintext, again, err
}

// choose returns the ApiKey that is named, or the first one of the merchant and mode that works, may do what the command asks, and has a Secret.
func (f *apiFlags) choose(ctx context.Context, kube *cluster.Cluster, merchant *v1alpha1.Merchant, own []v1alpha1.ApiKey) (*v1alpha1.ApiKey, error) {
	if f.apiKey != "" {
		key, err := kube.ApiKey(ctx, f.apiKey)
		switch {
		case err != nil:
		case key.Spec.MerchantRef.Name != merchant.Name:
			err = terminal.Usage("Name one of the merchant's: kubectl merchant status "+merchant.Name+" -n "+kube.Namespace, "ApiKey %s belongs to %s", key.Name, key.Spec.MerchantRef.Name)
		case len(f.missing(key)) > 0:
			err = terminal.Hinted("Leave out --key to use a key that has it, or "+f.issueHint(kube, merchant), "ApiKey %s/%s does not have the permission %s", kube.Namespace, key.Name, terminal.Join(f.missing(key), ","))
		}
		return key, err
	}
	var narrow []string // keys that lack a permission alone
	for i := range own {
		key := &own[i]
		mode := cmp.Or(key.Spec.Mode, v1alpha1.ModeLive)
		if keys.ModeFlag(mode) == f.mode && key.Spec.State != v1alpha1.ApiKeyDisabled &&
			meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.UsableCondition) && keys.Delivered(key) == nil {
			if len(f.missing(key)) == 0 {
				return key, nil
			}
			narrow = append(narrow, key.Name)
		}
	}
	if len(narrow) > 0 {
		return nil, terminal.Hinted("Bring another key with --key-stdin or --key-env, or "+f.issueHint(kube, merchant),
			"no %s key of %s/%s has the permissions %s; %s cannot be used", f.mode.String(), kube.Namespace, merchant.Name, terminal.Join(f.needs(), ","), strings.Join(narrow, ", "))
	}
	return nil, terminal.Hinted("Bring a key with --key-stdin or --key-env, or issue one: kubectl merchant keys issue", "no working %s key of %s/%s is in a Secret", f.mode.String(), kube.Namespace, merchant.Name)
}

// issueHint says how to get a key for the command.
func (f *apiFlags) issueHint(kube *cluster.Cluster, merchant *v1alpha1.Merchant) string {
	return fmt.Sprintf("issue one: kubectl merchant keys issue %s-office --merchant %s --mode %s --permissions read,list -n %s", merchant.Name, merchant.Name, f.mode.String(), kube.Namespace)
}

func (f *apiFlags) baseURL() (*url.URL, error) {
	return parseAPIURL(cmp.Or(f.url, os.Getenv("API_URL")))
}

// parseAPIURL reads the address of the API. A key travels without encryption only to this machine, or within the cluster.
func parseAPIURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, terminal.Usage("Set it to the address that tills use, such as https://pay.example.com; or set API_URL.", "--api-url is missing")
	}
	base, err := url.Parse(text)
	if err != nil || base.Hostname() == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" || base.Scheme != "https" && base.Scheme != "http" {
		return nil, terminal.Usage("Use a form like https://pay.example.com.", "--api-url or API_URL is not the address of an API")
	}
	host := base.Hostname()
	if base.Scheme == "http" && !loopbackHost(host) && !strings.HasSuffix(host, ".svc") && !strings.HasSuffix(host, ".svc.cluster.local") {
		return nil, terminal.Usage("Use https.", "--api-url or API_URL is plain http, so everybody on the way would see the key")
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	return base, nil
}

// loopbackHost reports whether a URL's host is this machine, by its name.
func loopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newAPIClient follows no redirect, which would take the key elsewhere, and uses a proxy for https only, for the same reason.
func newAPIClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: func(r *http.Request) (*url.URL, error) {
				if r.URL.Scheme != "https" {
					return nil, nil //nolint:nilnil // it means no proxy
				}
				return http.ProxyFromEnvironment(r)
			},
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, IdleConnTimeout: time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// api is the payment session API, as a merchant's key sees it.
type api struct {
	base   *url.URL
	client *http.Client
	key    string
	// readAgain reads the key again, which may have been rotated; nil: there is nowhere to read it from.
	readAgain func(context.Context) (string, error)
	// notify says why it waits, once for each problem.
	notify func(message string)

	merchant apiMerchant
	livemode bool
	// keyNames are the names of the merchant's ApiKeys by key id; nil: no cluster was asked.
	keyNames map[string]string
	zone     *time.Location
}

// apiMerchant is what the API says about the merchant of the key.
type apiMerchant struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	TimeZone string `json:"timeZone"`
}

// apiError is an answer that is an error.
type apiError struct {
	status     int
	code       string // Error-Code
	message    string
	requestID  string
	retryAfter time.Duration // 0: none
	body       []byte
}

func (e *apiError) Error() string {
	text := fmt.Sprintf("the API answers %d: %s", e.status, e.message)
	if e.requestID != "" {
		text += " (X-Request-Id " + e.requestID + ")"
	}
	return text
}

// tooManyStreams is the Error-Code of a wait for which the API has no room: its caller polls instead.
const tooManyStreams = "too_many_streams"

// permissionMissing is the Error-Code of a request for which the key has no permission.
const permissionMissing = "permission_missing"

// withAdvice adds to an error of the API what to do. Nothing was printed until then.
func withAdvice(err error) error {
	refused, ok := errors.AsType[*apiError](err)
	switch {
	case !ok, refused.status == http.StatusTooManyRequests, refused.status >= http.StatusInternalServerError:
		return terminal.Hinted("Nothing was printed. Check --api-url, and run the same command again.", "%w", err)
	case refused.status == http.StatusUnauthorized:
		return terminal.Hinted("The key is not of this API, or this machine is not on the allowlist: kubectl merchant explain-401 says which.", "%w", err)
	case refused.code == permissionMissing:
		return terminal.Hinted("Use a key that has it; kubectl merchant keys issue --permissions read,list makes one.", "%w", err)
	case refused.status == http.StatusNotFound, refused.status == http.StatusMethodNotAllowed:
		return terminal.Hinted("Is --api-url the address of the API, and has it the version of this plugin?", "%w", err)
	}
	return err
}

// identify asks whose key it is.
func (a *api) identify(ctx context.Context) error {
	var profile struct {
		Livemode bool        `json:"livemode"`
		Merchant apiMerchant `json:"merchant"`
	}
	if _, err := a.get(ctx, "/api/v1/merchant/me", nil, patience, &profile); err != nil {
		return withAdvice(err)
	}
	a.merchant, a.livemode = profile.Merchant, profile.Livemode
	var err error
	if a.zone, err = time.LoadLocation(profile.Merchant.TimeZone); err != nil {
		return terminal.Hinted("Install the plugin of the product's version.", "the time zone %q of the merchant is unknown here", profile.Merchant.TimeZone)
	}
	return nil
}

const (
	// patience is for how long a request is repeated that the API does not answer.
	patience = 2 * time.Minute
	// maxPause is the longest pause between two attempts.
	maxPause = 30 * time.Second
	// answerTime is how long an answer may take, beyond the time for which the API was asked to wait.
	answerTime = 15 * time.Second
	// maxAnswer bounds an answer: a page has at most some hundred kilobytes.
	maxAnswer = 32 << 20
)

// get sends a request until it is answered, for as long as patience says, and decodes the answer. The error is an *apiError unless
// there was no answer.
func (a *api) get(ctx context.Context, path string, query url.Values, patience time.Duration, answer any) (http.Header, error) {
	deadline := time.Now().Add(patience)
	reported := ""
	for pause := time.Second; ; pause = min(2*pause, maxPause) {
		header, err := a.once(ctx, path, query, answer)
		if err == nil {
			if reported != "" {
				a.notify("The API answers again.")
			}
			return header, nil
		}
		wait, again := a.retry(ctx, err, pause)
		if !again || time.Now().Add(wait).After(deadline) {
			return header, err
		}
		if problem := err.Error(); problem != reported && wait > 0 {
			a.notify("Waiting for the API: " + problem)
			reported = problem
		}
		if !sleep(ctx, wait) {
			return header, ctx.Err()
		}
	}
}

// retry says whether a failed request is worth another one, and after which time.
func (a *api) retry(ctx context.Context, err error, pause time.Duration) (wait time.Duration, again bool) {
	refused, ok := errors.AsType[*apiError](err)
	switch {
	case !ok:
		return pause, ctx.Err() == nil
	case refused.status == http.StatusUnauthorized && a.readAgain != nil:
		key, err := a.readAgain(ctx)
		rotated := err == nil && key != a.key
		if rotated {
			a.key = key
		}
		return 0, rotated
	case refused.code == tooManyStreams:
		return 0, false
	case refused.status == http.StatusTooManyRequests || refused.status >= http.StatusInternalServerError:
		return cmp.Or(refused.retryAfter, pause), true
	}
	return 0, false
}

// once sends a request.
func (a *api) once(ctx context.Context, path string, query url.Values, answer any) (http.Header, error) {
	limit := answerTime
	if seconds, err := strconv.Atoi(query.Get("wait")); err == nil {
		limit += time.Duration(seconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	target := *a.base
	target.Path += path
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+a.key)
	request.Header.Set("User-Agent", cluster.FieldOwner)
	response, err := a.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the API does not answer: %w", errors.Unwrap(err)) // without the URL, which has a cursor
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of the API: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return response.Header, newAPIError(response, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("read the answer of the API: %w", err)
	}
	return response.Header, nil
}

func newAPIError(response *http.Response, text []byte) *apiError {
	e := &apiError{
		status: response.StatusCode, code: response.Header.Get("Error-Code"), message: http.StatusText(response.StatusCode),
		requestID: response.Header.Get("X-Request-Id"), body: text,
	}
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &body) == nil && body.Error != "" {
		e.message = terminal.Printable(body.Error)
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.retryAfter = min(time.Duration(seconds)*time.Second, maxPause)
	}
	return e
}

// sleep waits, and reports whether the context still holds.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
