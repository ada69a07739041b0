package payments

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/text/language"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/money"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// refundFlags are the flags of payments refund.
type refundFlags struct {
	source                 apiFlags
	amount, reason, asking string
}

func (c *commands) refundCommand() *cobra.Command {
	flags := refundFlags{source: apiFlags{also: v1alpha1.PermissionRefund}}
	cmd := &cobra.Command{
		Use:   "refund SESSION_ID",
		Short: "Ask the payment network to pay a payment back",
		Long: "Ask the payment network to pay back the payment that completed a session, or a part of it. payments show says what became of it. The key needs\n" +
			"the permission refund, which no key has by default.\n\n" +
			"The Idempotency-Key on stderr names this refund: after an error the same command with --idempotency-key asks for no second one.",
		Example: "  kubectl merchant payments refund $SESSION_ID -n shops --amount 5.00 --reason 'one cup was cold'\n" +
			"  kubectl merchant payments refund $SESSION_ID --key-env --amount 1.00 --idempotency-key return-1001\n" +
			"  kubectl merchant payments refund $SESSION_ID -n shops",
		Args: terminal.Arguments("SESSION_ID"),
	}
	flags.source.add(cmd, c)
	cmd.Flags().StringVar(&flags.amount, "amount", "", "amount in the session's currency, such as 5.00; empty: all that is left of the payment")
	cmd.Flags().StringVar(&flags.reason, "reason", "", "reason for people, up to 255 characters")
	cmd.Flags().StringVar(&flags.asking, "idempotency-key", "", "name of the refund, of your choice: the same one asks for it once; empty: a new one")
	out := terminal.AddOutput(cmd, terminal.FormatJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := parseSession(args[0])
		if err != nil {
			return err
		}
		if _, err := session.ParseIdempotencyKey(flags.asking); flags.asking != "" && err != nil {
			return terminal.Usage("Use 1 to 255 visible ASCII characters.", "--idempotency-key is not one: %q", flags.asking)
		}
		a, err := flags.source.connectToOwner(cmd, c, id)
		if err != nil {
			return err
		}
		body, err := flags.body(cmd.Context(), a, id)
		if err != nil {
			return err
		}
		return c.refund(cmd.Context(), a, id, cmp.Or(flags.asking, "kubectl-"+rand.Text()), body, out)
	}
	return cmd
}

// body returns the body of the request. The digits of an amount depend on the session's currency.
func (f *refundFlags) body(ctx context.Context, a *api, id session.ID) (body map[string]any, err error) {
	body = map[string]any{}
	if f.reason != "" {
		body["reason"] = f.reason
	}
	if f.amount == "" {
		return body, nil
	}
	var payment payments.Payment
	if err := a.readSession(ctx, id, &payment); err != nil {
		return nil, err
	}
	cents, ok := money.NewFormatter(language.English).Parse(f.amount, payment.Currency)
	if !ok || cents == 0 {
		return nil, terminal.Usage("Use a form like "+session.FormatAmount(payment.AmountCents, payment.Currency)+".", "--amount %q is not an amount of %s", f.amount, payment.Currency)
	}
	body["amountCents"] = cents
	return body, nil
}

// refundAnswer is what the API says of a refund that was asked for.
type refundAnswer struct {
	payments.RefundRequest

	Currency   string `json:"currency"`
	Idempotent bool   `json:"idempotent"`
}

// refund asks for a refund, and prints it.
func (c *commands) refund(ctx context.Context, a *api, id session.ID, asking string, body map[string]any, out *terminal.Output) error {
	fmt.Fprintf(c.ErrOut, "Idempotency-Key: %s\n", asking) // before the request: its answer may be lost
	var raw json.RawMessage
	if _, err := a.post(ctx, sessionsPath+"/"+id.String()+"/refunds", asking, body, patience, &raw); err != nil {
		return fmt.Errorf("ask for a refund of %s: %w", id, a.withRefundAdvice(err, id, asking))
	}
	var answer refundAnswer
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("ask for a refund of %s: %w", id, err)
	}
	if answer.Idempotent {
		fmt.Fprintln(c.ErrOut, "It was asked for before.")
	}
	return out.Write(c.Out, raw, func(to io.Writer) error {
		table := terminal.NewTable(to)
		terminal.Row(table, "Refund", answer.RefundID)
		terminal.Row(table, "Status", refundState(answer.RefundRequest, a.zone))
		terminal.Row(table, "Amount", session.FormatAmount(answer.AmountCents, answer.Currency)+" "+answer.Currency)
		return table.Flush()
	})
}

// withRefundAdvice adds to an error of the API what to do.
func (a *api) withRefundAdvice(err error, id session.ID, asking string) error {
	refused, ok := errors.AsType[*apiError](err)
	switch {
	case !ok, refused.status == http.StatusTooManyRequests, refused.status >= http.StatusInternalServerError:
		return terminal.Hinted("It may have been asked for. Run the same command again with --idempotency-key "+asking+": it asks for no second refund.", "%w", err)
	case refused.code == permissionMissing:
		return terminal.Hinted("No key has this permission by default. Issue one that has: kubectl merchant keys issue NAME --merchant MERCHANT --permissions read,refund", "%w", err)
	case refused.status == http.StatusNotFound:
		return a.noSession(id)
	case refused.code == "refund_conflict":
		return terminal.Hinted("Use another --idempotency-key for another refund.", "%w", err)
	case refused.status == http.StatusConflict:
		return terminal.Hinted("What is left says, with the same key and -n: kubectl merchant payments show "+id.String(), "%w", err)
	}
	return err
}

// refundState is what became of a request for a refund.
func refundState(request payments.RefundRequest, zone *time.Location) string {
	state := terminal.Printable(string(request.Status))
	if request.DecidedAt != 0 {
		state += " " + shopTime(request.Decided(), zone)
	}
	if request.RejectReason != "" {
		state += ", " + terminal.Printable(request.RejectReason)
	}
	return state
}
