package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
)

// Command returns kubectl merchant explain-401.
func Command(access *cluster.Access, streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	c := &commands{streams, access, now}
	var keyStdin bool
	var from string
	cmd := &cobra.Command{
		Use:   "explain-401 --key-stdin --from ADDRESS",
		Short: "Find out why the API refuses a key from an address",
		Long: "Find out why the API refuses a key from an address. Callers of the API get the same 401 for every cause.\n\n" +
			"It reads the published objects and decides with the code of the API. The key is read from stdin, and goes nowhere. The exit code\n" +
			"is 0 if the API accepts the key from that address, and 3 if it refuses it.",
		Example: "  kubectl merchant explain-401 --key-stdin --from 203.0.113.7 < key.txt\n" +
			"  printenv API_KEY | kubectl merchant explain-401 --key-stdin --from 2001:db8::7 -o json",
		Args: terminal.Arguments(),
	}
	cmd.Flags().BoolVar(&keyStdin, "key-stdin", false, "read the key from stdin (required; an argument would be in the history of the shell)")
	cmd.Flags().StringVar(&from, "from", "", "address of the caller, as the API sees it (required)")
	out := terminal.AddOutput(cmd, terminal.FormatJSON, terminal.FormatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !keyStdin {
			return terminal.Usage("Pipe the key into it: printenv API_KEY | kubectl merchant explain-401 --key-stdin --from ADDRESS", "--key-stdin is missing")
		}
		address, err := parseAddress("--from", from)
		if err != nil {
			return err
		}
		presented, err := terminal.ReadKey(c.In)
		if err != nil {
			return err
		}
		kube, err := c.access.Connect()
		if err != nil {
			return err
		}
		e, err := c.explain(cmd.Context(), kube, presented, address)
		if err != nil {
			return err
		}
		if err := out.Write(c.Out, e, e.writeText); err != nil {
			return err
		}
		if !e.Accepted {
			return &terminal.NegativeError{}
		}
		return nil
	}
	return cmd
}

func parseAddress(flag, text string) (netip.Addr, error) {
	address, err := clientaddr.Parse(text)
	if err != nil {
		return address, terminal.Usage("Use an IPv4 or IPv6 address such as 203.0.113.7 or 2001:db8::7.", "%s must be an IP address, not %q", flag, text)
	}
	return address, nil
}

// explanation is why a key is refused, or that it is not; -o json prints it. It never has a key.
type explanation struct {
	Accepted bool `json:"accepted"`
	// Reason is the one in the API's metric and log; empty: the API accepts the key.
	Reason string `json:"reason,omitempty"`
	// Cause is a sentence, Next what to do.
	Cause    string `json:"cause"`
	Next     string `json:"next,omitempty"`
	Address  string `json:"address"`
	KeyID    string `json:"keyID,omitempty"`
	Prefix   string `json:"prefix,omitempty"` // of the presented key
	ApiKey   string `json:"apiKey,omitempty"` // namespace/name
	Merchant string `json:"merchant,omitempty"`
	// The rest is from the record of the ApiKey.
	CurrentPrefix string       `json:"currentPrefix,omitempty"`
	Rotated       *metav1.Time `json:"rotated,omitempty"`
	RotationCause string       `json:"rotationCause,omitempty"`
	Allowlist     []string     `json:"allowlist,omitempty"`
}

// explain decides as the API does: key, merchant, state and expiry, address, digest.
func (c *commands) explain(ctx context.Context, kube *cluster.Cluster, presented string, address netip.Addr) (explanation, error) {
	e := explanation{Address: address.String()}
	if !apikey.Plausible(presented) {
		e.refuse(directory.ReasonMalformed, malformed(presented), copyAgain)
		return e, nil
	}
	objects := newPublishedObjects(kube, c.access.CredentialsNamespace, c.now)
	if err := objects.readFor(ctx, presented); err != nil {
		return e, err
	}
	now := c.now()
	principal, err := objects.Identify(presented, now)
	if principal.KeyID != "" { // until now no merchant was read
		if err := objects.readMerchant(ctx, principal.KeyID); err != nil {
			return e, err
		}
		principal, err = objects.Identify(presented, now)
	} else if err := objects.readClaim(ctx, apikey.NewDigest(presented)); err != nil {
		return e, err
	}
	record := objects.records[principal.KeyID]
	e.describe(presented, record)
	switch {
	case errors.Is(err, directory.ErrNewerVersion):
		e.Cause = "A newer version of the operator wrote the record of the key or of its merchant. The API answers 503, not 401, where it cannot read all of it."
		e.Next = "Finish the upgrade of the operator and the API."
	case err != nil:
		e.explainKey(directory.UnauthorizedReason(presented, err), presented, objects, record)
		if e.Reason == directory.ReasonDisabled && !record.Revoked {
			e.Next = enableAdvice(ctx, kube, record.Source, now)
		}
	case !principal.Merchant.ReportOnly && !principal.Merchant.Allowlist.Allows(address):
		e.refuseAddress("merchant", "Merchant", principal.Merchant.Allowlist)
	case !principal.Merchant.ReportOnly && !principal.Allowlist.Allows(address):
		e.refuseAddress("key", "ApiKey", principal.Allowlist)
	case !principal.Live:
		e.explainReplaced(presented, record, func() string { return giveCurrent(ctx, kube, record) })
	case !principal.Merchant.Active():
		e.Cause = fmt.Sprintf("The key is good, but the merchant is %s: its requests get 403, not 401.", principal.Merchant.State)
		e.Next = "Set spec.state of the Merchant to Active, if it was not on purpose."
	default:
		e.Accepted = true
		e.Cause = "The API accepts the key from this address."
		if may := principal.Permissions.List(); !slices.Equal(may, v1alpha1.ImpliedPermissions()) {
			e.Cause += " Its permissions are: " + terminal.Join(may, ", ") + "; other requests get 403."
		}
	}
	return e, nil
}

func (e *explanation) refuse(reason, cause, next string) {
	e.Reason, e.Cause, e.Next = reason, cause, next
}

// refuseAddress says whose list does not have the address.
func (e *explanation) refuseAddress(owner, kind string, list allowlist.List) {
	for _, block := range list {
		e.Allowlist = append(e.Allowlist, block.String())
	}
	e.refuse(directory.ReasonAddressNotAllowed, "The address is not on the allowlist of the "+owner+": "+strings.Join(e.Allowlist, ", ")+".",
		"Add it to spec.ipAllowlist of the "+kind+". If it is the address of a proxy, start the API with --trusted-proxies.")
}

// describe fills in whose key it is, as far as it is known.
func (e *explanation) describe(presented string, record published.KeyRecord) {
	if id, ok := apikey.ParseID(presented); ok {
		e.KeyID, e.Prefix = id, apikey.Prefix(presented)
	}
	if record.KeyID == "" {
		return
	}
	e.KeyID, e.CurrentPrefix = record.KeyID, record.Current.Prefix
	e.ApiKey = record.Source.Namespace + "/" + record.Source.Name
	e.Merchant = published.PublicMerchantID(record.MerchantID)
	if !record.LastRotation.Time.IsZero() { // an envelope has no rotation
		e.Rotated, e.RotationCause = &metav1.Time{Time: record.LastRotation.Time}, string(record.LastRotation.Cause)
	}
}

const copyAgain = "Copy the key again from where it was delivered."

// malformed says why a string cannot be a key, without quoting it.
func malformed(presented string) string {
	switch {
	case strings.ContainsRune(presented, 0):
		return "What was piped is UTF-16, as Windows PowerShell writes it; every key is ASCII."
	case strings.HasPrefix(presented, "\ufeff"):
		return "The key begins with a byte order mark (BOM), which some Windows programs write into a file and nobody sees."
	case len(presented) < apikey.MinLength:
		return fmt.Sprintf("The key has %d characters; every key has at least %d.", len(presented), apikey.MinLength)
	case len(presented) > apikey.MaxLength:
		return fmt.Sprintf("The key has more than %d characters.", apikey.MaxLength)
	}
	return "The key has spaces, line breaks or other characters that no key has."
}

// explainKey explains why nothing accepts the string.
func (e *explanation) explainKey(reason, presented string, objects *publishedObjects, record published.KeyRecord) {
	id, _ := apikey.ParseID(presented)
	tombstone, deleted := objects.deleted[id]
	unreadable := objects.unreadable[id]
	namespace := record.Source.Namespace
	switch {
	case reason == directory.ReasonMalformed && len(presented) != apikey.Length:
		e.refuse(reason, fmt.Sprintf("The key has %d characters; a generated key has %d. It was not copied as a whole.", len(presented), apikey.Length), copyAgain)
	case reason == directory.ReasonMalformed:
		e.refuse(reason, "The checksum of the key is wrong: at least one character is mistyped.", copyAgain)
	case reason == directory.ReasonDisabled && record.Revoked:
		e.refuse(reason, "Another version of the operator revoked the key.", "Finish the upgrade of the operator, which then enables the key or says why not.")
	case reason == directory.ReasonDisabled:
		e.refuse(reason, "The ApiKey is disabled.", "") // what to do depends on more than the record
	case reason == directory.ReasonExpired:
		e.refuse(reason, "The ApiKey expired at "+record.ExpiresAt.UTC().Format(timeFormat)+".", "Set a later spec.expiresAt, and the key works again; or issue another key.")
	case reason == directory.ReasonMerchantMissing && objects.merchantDeleted:
		e.refuse(reason, "The Merchant of the ApiKey was deleted, and its keys ended with it.", "Create the Merchant and new ApiKeys: kubectl merchant onboard NAME --display-name TEXT -n "+namespace)
	case reason == directory.ReasonMerchantMissing:
		e.refuse(reason, "The Merchant of the ApiKey is not published: the operator has not published it yet, or it was deleted more than 90 days ago.",
			fmt.Sprintf("Look at its condition Ready: kubectl describe apikeys,merchants -n %s. If there is no Merchant, create it and new ApiKeys.", namespace))
	case reason == directory.ReasonDigestClaimed:
		e.refuse(reason, "The key is externally generated, and another ApiKey has claimed its SHA-256; the one that holds the claim is gone.", "Generate another key.")
	case reason == directory.ReasonWrongMode:
		e.refuse(reason, "The label of the key (mk_live_, mk_test_) is of another mode than the ApiKey with its SHA-256.", "Issue a key of the mode that the till needs.")
	case deleted:
		e.ApiKey = tombstone.Source.Namespace + "/" + tombstone.Source.Name
		e.refuse(reason, "The ApiKey was deleted at "+tombstone.EndedAt.UTC().Format(timeFormat)+". A deleted key never works again.", "Issue another key: kubectl merchant keys issue NAME --merchant MERCHANT -n "+tombstone.Source.Namespace)
	case unreadable != nil:
		e.refuse(reason, "The record of the key cannot be read: "+unreadable.Error()+".", "Look at the log of the operator, which repairs it or says why not.")
	case e.Prefix != "":
		e.refuse(reason, "There is no such key: its key id "+e.KeyID+" was never issued in this cluster, or its deletion is more than 90 days ago.", "Check that the till calls the API of this cluster, or issue a key.")
	case objects.claim != nil:
		owner := objects.claim.Source.Namespace + "/" + objects.claim.Source.Name
		e.refuse(reason, "The key is externally generated. Its SHA-256 is claimed by the ApiKey "+owner+", which does not have it now or was deleted; no other ApiKey can use it.",
			"Generate another key, and set spec.keyDigest to its SHA-256.")
	default:
		e.refuse(reason, "There is no such key: it is not a generated one, and no ApiKey has its SHA-256 in spec.keyDigest.", "Check what the till sends. A key of this product begins with mk_live_ or mk_test_.")
	}
}

const timeFormat = "2006-01-02 15:04:05Z"

// explainReplaced explains a key that is not the one in force; giveCurrent says how to get that.
func (e *explanation) explainReplaced(presented string, record published.KeyRecord, giveCurrent func() string) {
	digest := apikey.NewDigest(presented)
	former := slices.IndexFunc(record.Previous, func(previous published.Previous) bool { return previous.Digest.Equal(digest) })
	rotated := record.LastRotation.Time.UTC().Format(timeFormat)
	switch {
	case record.Superseded:
		e.refuse(directory.ReasonRotated, "The record of the key is older than what the API knows: it was restored from a backup.", "Wait for the operator, which issues a new key, or rotate it.")
	case former >= 0:
		e.refuse(directory.ReasonRotated, "The key was replaced, and its overlap ended at "+record.Previous[former].ValidUntil.UTC().Format(timeFormat)+".", giveCurrent())
	case !record.Issued():
		e.refuse(directory.ReasonRotated, "Nobody has a key of this ApiKey yet.", "Issue it in the console.")
	case record.Generation == 1:
		e.refuse(directory.ReasonRotated, "It is not the key of this ApiKey, which was never replaced.", giveCurrent())
	default:
		e.refuse(directory.ReasonRotated, fmt.Sprintf("The key was replaced. The last rotation was at %s, cause %s.", rotated, record.LastRotation.Cause), giveCurrent())
	}
}

func (e *explanation) writeText(to io.Writer) error {
	answer := "REFUSED"
	switch {
	case e.Accepted:
		answer = "ACCEPTED"
	case e.Reason != "":
		answer += " (" + e.Reason + ")"
	}
	fmt.Fprintf(to, "%s: %s\n", answer, terminal.Inline(e.Cause))
	table := terminal.NewTable(to)
	for _, line := range [][2]string{{"Address", e.Address}, {"Key", e.Prefix}, {"Current key", e.CurrentPrefix}, {"Key id", e.KeyID}, {"ApiKey", e.ApiKey}, {"Merchant", e.Merchant}} {
		if line[1] != "" {
			terminal.Row(table, "  "+line[0], line[1])
		}
	}
	if e.Rotated != nil {
		terminal.Row(table, "  Issued", e.Rotated.UTC().Format(timeFormat)+", cause "+e.RotationCause)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if e.Next != "" {
		fmt.Fprintln(to, "Next: "+terminal.Inline(e.Next))
	}
	return nil
}
