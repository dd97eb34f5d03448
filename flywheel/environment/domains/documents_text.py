"""The sentences of the `documents` domain: how customers write, per side of the split, as data.

Every phrasing holds {order}, {total} and {date}. An aside tells of another order ({other_order}, {other_total},
{other_date}) and always holds a word of `ASIDE_CUES`, which no phrasing and no signature holds: that is how a
reader, and the second verifier, can tell the order that is asked about from the one that is only mentioned.
The three sides share no sentence. Not covered: how values are written (`documents_values.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

TRAIN = (
    "Hi, I placed order {order} on {date} and paid {total}. It has not arrived yet.",
    "Where is my parcel? Order {order}, ordered {date}, total {total}.",
    "Hello team, on {date} I bought something under order {order} for {total}. Please send me the invoice.",
    "Order {order} from {date} came damaged. I was charged {total} and want my money back.",
    "I'd like to cancel {order}. I ordered it on {date} and the total was {total}.",
    "Good morning. My card was billed {total} on {date} for order {order}, but I never got a confirmation.",
    "Please refund {total} for order {order}, which I placed on {date}.",
    "The size is wrong! Order {order}, {date}, {total}. How do I exchange it?",
    "Could you tell me the status of {order}? I paid {total} for it on {date}.",
    "I need a receipt for my taxes: order {order}, placed {date}, amount {total}.",
    "My order number is {order}. I bought it on {date} and it cost {total}. The box was empty.",
    "On {date} you took {total} from my account for {order}. Is it on its way?",
    "Hey! Quick question about {order} ({total}, ordered on {date}): can I change the address?",
    "The courier lost {order}. It was worth {total} and I ordered it on {date}.",
    "Dear support, I am writing about order {order} dated {date} in the amount of {total}.",
    "Still waiting for {order}, I ordered it on {date}. Total paid: {total}.",
    "Can I return the shoes from order {order}? They cost {total} and were bought on {date}.",
    "Since {date} I am waiting for order {order}. I paid {total} by card.",
    "Your shop charged me twice for {order}. One charge of {total} on {date} would be right.",
    "Order ref {order}. Date {date}. Total {total}. The lamp does not work.",
    "I ordered a gift on {date}, reference {order}, for {total}, and it came without the card.",
    "There is a mistake on the bill for {order}: it says {total}. The purchase was on {date}.",
    "We received only half of {order}. We ordered on {date} and paid {total} in full.",
    "Please confirm that you got my payment of {total} for order {order}, made on {date}.",
)

EVAL = (
    "It's about the blender: {order}, purchased {date}, price {total}. The lid leaks.",
    "Would you mind checking {order} for me? The sum of {total} left my bank on {date}.",
    "Ordered: {date}. Reference: {order}. Paid: {total}. Delivered: no.",
    "I spent {total} with you on {date} and my tracking page for {order} is blank.",
    "Thanks for the quick dispatch of {order}! Sadly the {total} you billed on {date} is too much.",
    "My husband bought a jacket on {date}. The confirmation says {order} and {total}. It does not fit.",
    "Complaint regarding purchase {order} ({date}): two items missing, {total} charged nonetheless.",
    "Regarding {order}, I would like an update. Bought on {date}; value {total}.",
    "After paying {total} on {date} I only got a mail with the code {order} and nothing since.",
    "Kindly stop shipment of {order}. The amount was {total}, the purchase date {date}.",
    "So I opened the package from {order} and it's the wrong colour. {total} down the drain, bought {date}.",
    "A warranty claim, please: {order}, date of purchase {date}, purchase price {total}.",
    "You owe me {total}. I sent back everything from {order}, bought on {date}.",
    "How long does delivery take? {order} was purchased on {date} for {total}.",
    "The discount is missing in {order}. Instead of less I paid {total} on {date}.",
    "To whom it may concern: transaction {order}, executed {date}, value {total}, is unknown to me.",
)

SIBLING = (
    "No sign of {order} so far. Purchase of {date}, {total}.",
    "I want to dispute the {total} for {order}; I bought it on {date}.",
    "Is {order} ready for pickup? I bought it on {date} and it was {total}.",
    "The charger in {order} is broken. It was {total} when I bought it on {date}.",
    "For our books we need a copy of the bill: {order}, {date}, {total}.",
    "Bought {date}, paid {total}, code {order}. The seal was open.",
    "Please split the payment for {order}. It is {total}, bought on {date}.",
    "The {total} I paid on {date} for {order} should have included shipping.",
    "Your driver left {order} in the rain. Purchased {date}, value {total}.",
    "I can't download the manual for {order}. I bought it on {date} for {total}.",
    "My purchase {order} of {date} shows as unpaid, yet {total} is gone.",
    "We were promised delivery by now. {order}, {total}, bought on {date}.",
)

SIGNATURES: Mapping[str, tuple[str, ...]] = {
    "train": ("My name is {name}.", "Regards, {name}", "Thanks, {name}", "Cheers, {name}."),
    "eval": ("Sincerely, {name}", "Best wishes from {name}.", "I am {name}."),
    "sibling": ("Yours, {name}", "Signed: {name}", "Greetings from {name}."),
}

ASIDE_CUES = ("earlier", "previous", "another", "different", "last time", "separate", "former", "unrelated")

ASIDES: Mapping[str, tuple[str, ...]] = {
    "train": (
        "My earlier order {other_order} for {other_total} was fine.",
        "The previous one, {other_order} of {other_date}, came on time.",
        "This is not about another order of mine, {other_order} ({other_total}).",
        "I know that {other_order} is a different order, that one was {other_total} on {other_date}.",
    ),
    "eval": (
        "Last time, with {other_order} at {other_total}, all went well.",
        "I have a separate purchase {other_order} from {other_date}, leave it alone.",
        "Don't mix it up with the unrelated {other_order} over {other_total}.",
    ),
    "sibling": (
        "A former purchase, {other_order} for {other_total}, is settled.",
        "There is also a separate one, {other_order} dated {other_date}.",
        "Unrelated to {other_order}, which cost {other_total}.",
    ),
}

PHRASINGS: Mapping[str, tuple[str, ...]] = {"train": TRAIN, "eval": EVAL, "sibling": SIBLING}
