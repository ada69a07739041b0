package payments

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/keys"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// apiFlags are the flags of commands that call the payment session API with a key of the merchant.
type apiFlags struct {
	url              string
	apiKey           string
	keyStdin, keyEnv bool
	mode             keys.ModeFlag
	// also is the permission that the key needs besides read; empty: none.
	also v1alpha1.Permission
}

// needs are the permissions for what the command asks.
func (f *apiFlags) needs() []v1alpha1.Permission {
	if f.also != "" {
		return []v1alpha1.Permission{v1alpha1.PermissionRead, f.also}
	}
	return []v1alpha1.Permission{v1alpha1.PermissionRead}
}

// missing are the permissions that the command needs and a key has not.
func (f *apiFlags) missing(key *v1alpha1.ApiKey) []v1alpha1.Permission {
	has := key.Spec.Permissions
	if has == nil {
		has = v1alpha1.ImpliedPermissions()
	}
	return slices.DeleteFunc(f.needs(), func(p v1alpha1.Permission) bool { return slices.Contains(has, p) })
}

func (f *apiFlags) add(cmd *cobra.Command, c *commands) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "api-url", "", "address of the API, the one that tills use: https, or http on this machine and in this cluster (.svc); empty: $API_URL")
	flags.StringVar(&f.apiKey, "key", "", "name of the ApiKey whose key to use, from its Secret; empty: the first one of the merchant that works and has the permissions")
	_ = cmd.RegisterFlagCompletionFunc("key", func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) { // fails only for an unknown flag
		return c.access.CompleteKeys(cmd, nil, typed)
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
func (f *apiFlags) connect(cmd *cobra.Command, c *commands, merchant []string) (*api, error) {
	ctx := cmd.Context()
	if err := f.check(cmd, merchant); err != nil {
		return nil, err
	}
	base, err := f.baseURL()
	if err != nil {
		return nil, err
	}
	a := &api{base: base, client: newAPIClient(), notify: func(message string) { fmt.Fprintln(c.ErrOut, message) }}
	wantID := ""
	if f.ownKey() {
		if a.key, err = f.readOwnKey(c); err != nil {
			return nil, err
		}
	} else {
		kube, err := c.access.Connect()
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

func (f *apiFlags) readOwnKey(c *commands) (string, error) {
	if f.keyStdin {
		return terminal.ReadKey(c.In)
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
			err = terminal.Hinted("Leave out --key to use a key that has it"+f.orIssue(ctx, kube, merchant), "ApiKey %s/%s does not have the permission %s", kube.Namespace, key.Name, terminal.Join(f.missing(key), ","))
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
		return nil, terminal.Hinted("Bring another key with --key-stdin or --key-env"+f.orIssue(ctx, kube, merchant),
			"no %s key of %s/%s has the permissions %s; %s cannot be used", f.mode.String(), kube.Namespace, merchant.Name, terminal.Join(f.needs(), ","), strings.Join(narrow, ", "))
	}
	return nil, terminal.Hinted("Bring a key with --key-stdin or --key-env"+f.orIssue(ctx, kube, merchant), "no working %s key of %s/%s is in a Secret", f.mode.String(), kube.Namespace, merchant.Name)
}

// orIssue is the end of a hint: it says how to get a key for the command, if a new key of the merchant would work.
func (f *apiFlags) orIssue(ctx context.Context, kube *cluster.Cluster, merchant *v1alpha1.Merchant) string {
	switch {
	case merchant.DeletionTimestamp != nil:
		return ". A new key of the merchant would end with it: it is being deleted."
	case merchant.Spec.State != v1alpha1.MerchantActive:
		return ". A new key of the merchant would be refused too: its spec.state is " + string(merchant.Spec.State) + "."
	}
	use, permissions := "office", []v1alpha1.Permission{v1alpha1.PermissionRead, v1alpha1.PermissionList}
	if f.also == v1alpha1.PermissionRefund {
		use, permissions = "refunds", f.needs()
	}
	name := keys.FreeName(merchant.Name, use, func(name string) bool {
		return kube.Get(ctx, client.ObjectKey{Namespace: kube.Namespace, Name: name}, &v1alpha1.ApiKey{}) == nil
	})
	return fmt.Sprintf(", or issue one: kubectl merchant keys issue %s --merchant %s --mode %s --permissions %s -n %s",
		name, merchant.Name, f.mode.String(), terminal.Join(permissions, ","), kube.Namespace)
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

// connectToOwner connects with a key of the merchant whose id is part of the session id.
func (f *apiFlags) connectToOwner(cmd *cobra.Command, c *commands, id session.ID) (*api, error) {
	f.mode = keys.ModeFlag(v1alpha1.ModeLive)
	if id.TestMode() {
		f.mode = keys.ModeFlag(v1alpha1.ModeTest)
	}
	if f.ownKey() {
		return f.connect(cmd, c, nil)
	}
	if _, err := f.baseURL(); err != nil {
		return nil, err
	}
	kube, err := c.access.Connect()
	if err != nil {
		return nil, err
	}
	var merchants v1alpha1.MerchantList
	if err := kube.List(cmd.Context(), &merchants, kube.In(false)); err != nil {
		return nil, fmt.Errorf("list Merchants in namespace %s: %w", kube.Namespace, err)
	}
	for i := range merchants.Items {
		if published.ID(merchants.Items[i].UID) == id.MerchantID() {
			return f.connect(cmd, c, []string{merchants.Items[i].Name})
		}
	}
	return nil, terminal.Hinted("Name its namespace with -n.", "session %s belongs to no Merchant in namespace %s", id, kube.Namespace)
}
